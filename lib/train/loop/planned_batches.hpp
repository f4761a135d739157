#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "core/span_sink.hpp"
#include "data/loader.hpp"
#include "parallel/step/sample_source.hpp"

namespace dtrain::train {

/// The batches that a loader hands out, prepared for the model and matched to the plan by their ids: a step
/// must not train on other samples than it counts.
class PlannedBatches final : public parallel::SampleSource {
 public:
  /// Mostly data::Loader::next() and Replica::training_samples().
  using NextBatch = std::function<data::Batch()>;
  using Prepare = std::function<parallel::Samples(const data::Batch& batch)>;

  /// `sink`, borrowed, gets the time of both.
  PlannedBatches(NextBatch next, Prepare prepare, SpanSink& sink);

  /// Forgets what was read ahead: the loader begins a new list.
  void begin() { ahead_.clear(); }

  parallel::Samples take(const parallel::StepPlan& plan, std::size_t m) override;
  std::vector<parallel::Samples> look_ahead(const parallel::StepPlan& plan) override;
  void read_ahead() override { ahead_.push_back(read()); }

 private:
  struct Read {
    data::Batch batch;  // without its arrays
    parallel::Samples samples;
  };
  Read read() const;

  NextBatch next_;
  Prepare prepare_;
  SpanSink& sink_;
  std::deque<Read> ahead_;  // read, and not yet taken
};

}  // namespace dtrain::train
