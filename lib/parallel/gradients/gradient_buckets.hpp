#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "comm/group.hpp"
#include "comm/queue.hpp"
#include "core/slice.hpp"
#include "models/compute/gradient_place.hpp"
#include "parallel/gradients/compression/gradient_compression.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/gradient_hooks.hpp"
#include "parallel/gradients/gradient_sums.hpp"
#include "parallel/memory/exchange_memory.hpp"
#include "parallel/memory/memory_meter.hpp"
#include "parallel/step/step_capture.hpp"

namespace dtrain::parallel {

struct BucketConfig {
  std::int64_t bucket_bytes = 0;  ///< Gradients that travel together; 0 chooses by the size of the model.
  comm::Algorithm algorithm = comm::Algorithm::automatic;
  /// Each rank updates all parameters of its own, or its parts of them, which needs the sums of those parts
  /// only: where the ranks share the parameters' memory those that are there first, elsewhere shards,
  /// part_of() each bucket.
  enum class Update { everything, parts, shards } update = Update::everything;
  /// Those that hold the same parts as this rank in other groups, whose sums are added to these; null: no
  /// rank does. Outlives the buckets.
  comm::Group* across = nullptr;
  GradientCompression* compression = nullptr;  ///< Between nodes; null: none. Outlives the buckets.
};

/// Which gradients come to the buckets, and how often.
struct CollectedGradients {
  const models::Parameter* left_out = nullptr;  ///< Another collector has its gradient; null: all come here.
  /// See StepEngine::met_again().
  std::vector<const models::Parameter*> met_again = {};
};

/// Synchronous data parallelism (`ddp`): gradients are summed over a step's micro-batches in place, in memory
/// the communication reads directly, and over the ranks of a group in buckets that leave while backward still
/// runs.
///
/// Buckets are sub-ranges of the flat gradient in the order gradients become ready, fixed at the start and
/// checked to be the same on all ranks; bucket i is issued only after bucket i - 1, so that all ranks issue
/// the same operations in the same order even when some parameters receive no gradient.
/// Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
class GradientBuckets final : public GradientSums {
 public:
  /// Collective over `group`: allocates and compares layouts. Throws Error when ranks disagree. `capture`,
  /// borrowed: what may capture steps; null: nothing does.
  GradientBuckets(FlatParameters& parameters, comm::Group& group, comm::Queue& queue, BucketConfig config,
                  const CollectedGradients& collected = {}, StepCapture* capture = nullptr);

  /// Whether the sums are those of all ranks from the next step on, or of this rank's micro-batches alone.
  enum class Exchange { sums, nothing };
  void exchange(Exchange exchange) { exchange_ = exchange; }

  /// Reads each bucket once more before it leaves.
  void measure_own(bool wanted) override { measures_own_ = wanted; }
  double own_squares() const override { return own_squares_; }

  void begin_step(int micro_batches) override;
  void taken_back(int /*index*/) override {}
  void expect_share(const models::Parameter* parameter) override;
  void add_share(const models::Parameter* parameter, const at::Tensor& gradient) override;
  /// Issues what no hook has issued (zeros for parameters without gradient) and waits for every bucket.
  void finish(const std::function<void()>& exchange_shares = {}) override;
  const at::Tensor& gradients() const override { return memory_.values(); }
  bool updates_parts() const override { return updates_parts_; }
  const std::vector<Range>& update_parts() const override { return update_parts_; }
  std::vector<Range> shared_out() const override;
  const std::vector<Range>& own_parts() const override { return own_parts_; }

  std::size_t bucket_count() const { return buckets_.size(); }

 private:
  struct Bucket {
    std::int64_t begin = 0;  // elements of the flat gradient
    std::int64_t end = 0;
    int parameters = 0;
    int missing = 0;  // gradients not yet complete in this step
    comm::Handle handle;
    comm::Handle crossing;  // of this rank's part, to other groups
    Range range() const { return {begin, end}; }
  };
  void make_buckets(std::int64_t bucket_bytes);
  void choose_parts();
  void on_gradient(std::size_t entry);
  void count(std::size_t entry, int micro_batches = 1);
  bool completes(std::size_t entry, int micro_batches);
  std::size_t entry_of(const models::Parameter* parameter) const;
  comm::Handle sum(std::size_t bucket) const;
  void issue_ready_buckets();
  void cross(bool wait);
  bool exchanges() const { return group_.size() > 1 && exchange_ == Exchange::sums; }

  FlatParameters& parameters_;
  std::vector<FlatParameters::Entry> entries_;  // without CollectedGradients::left_out
  comm::Group& group_;
  comm::Queue& queue_;
  BucketConfig config_;
  StepCapture* capture_;
  MemoryCharge charge_;
  ExchangeMemory memory_;
  std::deque<models::GradientPlace> places_;  // per entry
  std::vector<at::Tensor> views_;             // per entry
  std::vector<std::size_t> bucket_of_;        // per entry
  std::vector<int> uses_;                     // per entry: how often backward meets it in a micro-batch
  std::vector<int> shares_;                   // per entry: of other ranks, in each step
  std::vector<int> received_;                 // per entry: gradients that have come in this step
  std::vector<Bucket> buckets_;
  bool updates_parts_ = false;
  std::vector<Range> update_parts_;
  std::vector<Range> own_parts_;
  std::size_t next_bucket_ = 0;  // the first one not issued
  std::size_t crossed_ = 0;      // the first one whose crossing has not been issued
  int micro_batches_ = 0;
  bool measures_own_ = false;
  double own_squares_ = 0;  // of the step so far
  Exchange exchange_ = Exchange::sums;
  std::optional<GradientHooks> hooks_;  // goes before what it calls
};

}  // namespace dtrain::parallel
