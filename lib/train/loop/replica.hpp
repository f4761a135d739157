#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/emulation/clocked_group.hpp"
#include "comm/faults/injection.hpp"
#include "data/loader.hpp"
#include "federated/client_rounds.hpp"
#include "h5/library.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "parallel/step/clocked_engine.hpp"
#include "parallel/step/direct_engine.hpp"
#include "parallel/step/graph_engine.hpp"
#include "parallel/step/pipeline_engine.hpp"
#include "parallel/strategy/strategy.hpp"
#include "train/loop/evaluation.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// A rank's part of a model that is being trained: the pipeline and engine that compute gradients, and the
/// strategy that agrees on them and updates. Made alike on all ranks.
class Replica {
 public:
  /// What this rank asks of all ranks at the end of a step.
  using Requests = std::function<parallel::StepRequests()>;

  /// What the run takes from the strategy within a step.
  struct Takes {
    parallel::GraphEngine::Tell graphs;                         ///< What comes of capturing steps.
    parallel::StrategyParts::Tell tell;                         ///< What it decides.
    std::function<void(const std::string& lines)> ledger = {};  ///< StrategyParts::keep_ledger
  };
  /// Everything is borrowed; `rounds` (null: the samples belong to no clients) and `injection` may be null.
  /// `recovers`: whether the run goes on after a rank was lost. Collective over the job. Throws Error (exit
  /// code 2) where the strategy cannot train this model.
  Replica(const RunConfig& config, Job& job, Workload& workload, const federated::ClientRounds* rounds,
          comm::Injection* injection, bool recovers, Requests requests, Takes takes);

  /// What the strategy can do in this run.
  const parallel::Abilities& can() const { return can_; }

  /// One update; see parallel::Strategy::step().
  parallel::StepOutcome step(const parallel::StepPlan& plan, parallel::SampleSource& samples);

  parallel::Strategy& strategy() const { return *strategy_; }

  /// What each rank of the data axis says, of the ranks of a copy the largest, which is not negative; takes
  /// its time on an emulated machine, too. Collective.
  std::vector<double> largest_of_copies(double mine);
  /// The same of each rank of the pipe axis, of all copies the largest.
  std::vector<double> largest_of_stages(double mine);

  /// A training batch as the model takes it.
  parallel::Samples training_samples(const data::Batch& batch) const;

  /// The agreed model, to be saved between two steps. Collective.
  parallel::StateView state();

  /// Takes from the checkpoint in `folder`, whose files have been checked, the weights and buffers, or the
  /// optimizer's state, and says what of it starts anew: see state::load_optimizer(). Collective. Throws
  /// Error (exit code 4).
  void load_weights(const std::filesystem::path& folder, h5::Library& library);
  std::set<std::string> load_optimizer(const std::filesystem::path& folder, h5::Library& library);
  /// Where that begins anew: what outlives it alone, see state::load_what_outlives_reset().
  void load_what_outlives_reset(const std::filesystem::path& folder, h5::Library& library);

  Evaluation::Parts evaluation_parts() {
    return train::evaluation_parts(job_, workload_, pipeline_, preparation_);
  }

  /// Whether this rank reads batches: the first and the last of a pipeline do.
  bool reads() const { return pipeline_.is_first() || pipeline_.is_last(); }
  /// Whether this rank counts the samples of its pieces: one rank of a copy does.
  bool counts_samples() const { return pipeline_.is_last() && job_.speaks_for_tensor_group(); }

 private:
  comm::Group& data_group();
  std::unique_ptr<parallel::DirectEngine> direct_engine();
  parallel::StepEngine& engine();
  void settle_clock();
  std::vector<double> largest(double mine, int extent, int topology::MeshCoordinates::*axis);

  const RunConfig& config_;
  Job& job_;
  Workload& workload_;
  comm::Injection* injection_;
  parallel::Setting setting_;
  parallel::Abilities can_;
  Preparation preparation_;
  std::unique_ptr<parallel::StepCapture> capture_;  // null: no step is captured
  parallel::Pipeline pipeline_;
  parallel::PipelineEngine engine_;
  std::unique_ptr<parallel::GraphEngine> graphs_;   // null: engine_ does all steps,
  std::unique_ptr<parallel::DirectEngine> direct_;  // unless this one does
  /// Of an emulated machine: what passes through here takes time on its clock.
  struct Clocked {
    comm::ClockedGroup world;
    comm::ClockedGroup data;
    std::unique_ptr<comm::ClockedGroup> data_in_node;  // null: data groups are not split
    std::unique_ptr<comm::ClockedGroup> data_across;   // likewise
    std::unique_ptr<comm::ClockedGroup> data_gathers;  // null: gathers have no lane of their own
    parallel::ClockedEngine engine;
  };
  std::unique_ptr<Clocked> clocked_;  // null: none is
  std::unique_ptr<parallel::Strategy> strategy_;
};

}  // namespace dtrain::train
