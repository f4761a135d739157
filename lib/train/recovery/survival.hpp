#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "checkpoint/manifest.hpp"
#include "comm/faults/injection.hpp"
#include "comm/mpi/mpi_environment.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "h5/library.hpp"
#include "state/part_copies.hpp"
#include "state/remains.hpp"
#include "train/config/config.hpp"
#include "train/loop/replica.hpp"
#include "train/loop/run_outputs.hpp"
#include "train/recovery/recovery.hpp"
#include "train/setup/job.hpp"

namespace dtrain::train {

/// What one part of a run does so that it outlives lost ranks: copies of its state while it trains, and a
/// checkpoint of what the survivors hold when ranks are gone.
class Survival {
 public:
  struct Parts {
    const RunConfig& config;
    Job& job;
    Replica& replica;
    RunOutputs& outputs;
    comm::Injection* injection;  // null: no fault is wanted
    Recovery& recovery;
    comm::MpiEnvironment& mpi;
    h5::Library& library;
    const Log& log;
  };
  /// All is borrowed. Collective over the job. Throws Error (exit code 2) where the options ask for what the
  /// strategy cannot do with this model.
  explicit Survival(const Parts& parts);

  /// Of the last step, when a checkpoint of it could be written.
  using Info = std::function<checkpoint::CheckpointInfo()>;
  /// After each step: copies, and the end of a recovery. Collective.
  void after_step(std::int64_t step, const Info& info);

  /// Records what there is to know about a rank that is gone or does not answer: `error`, and what the ranks
  /// of this node have communicated last. Where the run goes on, the ranks that are gone are left behind
  /// then, and what the others hold is saved: returns true on all of them. `step`: the last one this rank has
  /// done. `files`: as Recovery::leave_lost_behind().
  bool leave_lost_behind(const Error& error, std::int64_t step, const Info& info, Recovery::Files files);

  /// The last step's checkpoint is there, and the weights may be replaced from now on: after a loss nothing
  /// is saved.
  void all_is_saved() { all_is_saved_ = true; }

 private:
  void record(const Error& error) noexcept;
  state::Remains save_what_is_left(std::int64_t step, const Info& info);
  void record_recovery(std::int64_t step);

  Parts parts_;
  std::unique_ptr<state::PartCopies> copies_;  // null: none are wanted
  std::int64_t copied_ = 0;                    // the step that was last looked at
  std::optional<LostRanks> behind_;            // until the first step after them is done
  double rebuilt_s_;                           // when all was there for that
  bool all_is_saved_ = false;
};

}  // namespace dtrain::train
