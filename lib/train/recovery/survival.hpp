#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "checkpoint/manifest.hpp"
#include "comm/faults/injection.hpp"
#include "comm/mpi/mpi_environment.hpp"
#include "core/log.hpp"
#include "h5/library.hpp"
#include "state/part_copies.hpp"
#include "state/remains.hpp"
#include "train/config/config.hpp"
#include "train/loop/replica.hpp"
#include "train/loop/run.hpp"
#include "train/loop/run_outputs.hpp"
#include "train/setup/job.hpp"

namespace dtrain::train {

/// How a run outlives lost ranks: what it does so that it can, and what those that are left do before they go
/// on in a run of their own.
class Survival {
 public:
  /// Whether the run is to go on after a loss.
  static bool wanted(const RunConfig& config, const comm::MpiEnvironment& mpi);

  struct Parts {
    const RunConfig& config;
    Job& job;
    Replica& replica;
    RunOutputs& outputs;
    comm::Injection* injection;
    comm::MpiEnvironment& mpi;
    h5::Library& library;
    const Log& log;
  };
  /// `behind`: what this run goes on after. All else is borrowed. Collective over the job.
  Survival(const Parts& parts, std::optional<Recovery> behind);

  /// Of the last step, when a checkpoint of it could be written.
  using Info = std::function<checkpoint::CheckpointInfo()>;
  /// After each step: copies, and the end of a recovery. Collective.
  void after_step(std::int64_t step, const Info& info);

  /// Records what there is to know about a rank that is gone or does not answer: `error`, and what the ranks
  /// of this node have communicated last. Then throws RanksLost, on all that are left, where the run is to go
  /// on without ranks that are gone: these are left behind, and what the others hold is saved. Returns where
  /// it is not, or where all are there. `step`: the last one this rank has done.
  void leave_lost_behind(const Error& error, std::int64_t step, const Info& info);

  /// The last step's checkpoint is there, and the weights may be replaced from now on: after a loss nothing
  /// is saved.
  void all_is_saved() { all_is_saved_ = true; }

 private:
  void record(const Error& error) noexcept;
  state::Remains save_what_is_left(std::int64_t step, const Info& info);
  void record_recovery(std::int64_t step);

  Parts parts_;
  std::unique_ptr<state::PartCopies> copies_;  // null: none are wanted
  std::optional<Recovery> behind_;             // until its first step is done
  double rebuilt_s_;                           // when all was there for that
  bool all_is_saved_ = false;
};

}  // namespace dtrain::train
