#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/span_sink.hpp"
#include "data/loader.hpp"
#include "h5/library.hpp"
#include "parallel/node_memory.hpp"
#include "parallel/pipeline.hpp"
#include "train/evaluation.hpp"
#include "train/job.hpp"
#include "train/saved_state.hpp"
#include "train/step_graphs.hpp"
#include "train/training_step.hpp"
#include "train/workload.hpp"

namespace dtrain::train {

/// A rank's part of a model that is being trained: parameters and optimizer state in flat memory, shared in a
/// node where it can be, the pipeline that computes gradients, what agrees on them, and the step over all
/// that. Made alike on all ranks, with the same values wherever ranks hold the same.
class Replica {
 public:
  /// What this rank asks of all ranks at the end of a step.
  using Requests = std::function<parallel::StepRequests()>;

  /// Everything is borrowed; `injection` may be null. `recovers`: whether this run is to outlive lost ranks.
  /// `tell_graphs`: what comes of capturing steps. Collective over the job.
  Replica(const RunConfig& config, Job& job, Workload& workload, Injection* injection, bool recovers,
          Requests requests, StepGraphs::Tell tell_graphs);

  /// Why no step is captured for the device to replay; empty: they are, or the CPU computes.
  const std::string& no_graphs() const { return no_graphs_; }

  /// One update; see TrainingStep::run().
  StepOutcome step(const StepPlan& plan, parallel::SampleSource& samples);

  /// A training batch as the model takes it.
  parallel::Samples training_samples(const data::Batch& batch) const;

  LossScaler& scaler() { return training_step_.scaler(); }
  const LossScaler& scaler() const { return training_step_.scaler(); }

  /// Compares what all copies of this rank's part of the model hold, by hash; `number`: the step done last.
  /// Collective. Throws Error naming the ranks that hold something else than most.
  void compare_copies(std::int64_t number);

  /// Makes all values current, for evaluation and saving, where a step leaves idle rows behind. Collective.
  void make_current();
  /// To be saved between two steps. Collective.
  TrainingState state();

  /// Whether after a loss this rank has all it needs to be where a step began or ended. Not where a step
  /// changes single rows of a table ahead of its update.
  bool outlives_loss() const { return undo_ != nullptr; }
  /// Makes the state that before step `number`, if this rank or one of its node had begun to update. Not
  /// collective, but called by all that are left, before any of them goes on. Returns that state.
  TrainingState take_back(std::int64_t number);

  /// Takes from the checkpoint in `folder`, whose files have been checked, the weights and buffers, or the
  /// optimizer's state. Collective. Throws Error (exit code 4).
  void load_weights(const std::filesystem::path& folder, h5::Library& library);
  void load_optimizer(const std::filesystem::path& folder, h5::Library& library);

  Evaluation::Parts evaluation_parts() {
    return train::evaluation_parts(job_, workload_, pipeline_, preparation_);
  }

  /// Whether this rank reads batches: the first and the last of a pipeline do.
  bool reads() const { return pipeline_.is_first() || pipeline_.is_last(); }
  /// Whether it is this rank that counts the samples of its pieces: one rank of a copy does.
  bool counts_samples() const { return pipeline_.is_last() && job_.speaks_for_tensor_group(); }

 private:
  void agree_on_values();

  const RunConfig& config_;
  Job& job_;
  Workload& workload_;
  Injection* injection_;
  comm::Group& data_group_;
  Preparation preparation_;
  std::string no_graphs_;
  std::unique_ptr<parallel::StepCapture> capture_;  // null: no step is captured
  parallel::Pipeline pipeline_;
  parallel::NodeMemory memory_;
  parallel::FlatParameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<parallel::RowUpdates> rows_;  // before the gradients, which leave its parameter out
  std::unique_ptr<parallel::GradientSums> gradients_;
  std::unique_ptr<parallel::ReproducibleTotals> totals_;  // null: none are wanted
  parallel::StepControl control_;
  parallel::StepStatistics statistics_;
  parallel::TiedParameters tied_;
  std::unique_ptr<parallel::StepUndo> undo_;  // null: nothing is kept
  std::unique_ptr<StepGraphs> graphs_;        // null: no step is captured
  TrainingStep training_step_;
};

}  // namespace dtrain::train
