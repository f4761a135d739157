#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/mpi/mpi_environment.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/start_notice.hpp"
#include "record/rows.hpp"
#include "state/resume_point.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

/// What happened before a run goes on without ranks that were lost.
struct Recovery {
  std::vector<int> lost;                           ///< In MPI_COMM_WORLD at the start.
  double noticed_s = 0;                            ///< steady_s()
  double agreed_s = 0;                             ///< Those that are left know of each other.
  std::vector<record::TopologyRow> topology = {};  ///< Of the run so far; on some ranks perhaps none.

  std::string lost_in_words() const;  ///< `rank 1`, `ranks 1, 3`.
};

/// Ranks were lost in the middle of a run. This rank and the others that are left know of each other and have
/// saved what they could: the run is to be gone on with.
class RanksLost final : public Error {
 public:
  RanksLost(const Error& why, Recovery recovery) : Error(why), recovery_(std::move(recovery)) {}
  const Recovery& recovery() const noexcept { return recovery_; }

 private:
  Recovery recovery_;
};

/// Trains a model as `config` says and leaves a run folder behind: set up, build the mesh, create the model,
/// create the loader, train, clean up. `config` is resolved and validated, and the same on every rank. Goes
/// on from `resume` where that is given, on whatever layout. Returns ExitCode::stopped when it was asked to
/// stop and has left a checkpoint. `recovery`: what it goes on after. `starting` (null: nothing) is told what
/// a start is busy with. Collective over mpi.world(). Throws RanksLost where MPI allows to go on after a loss
/// and the configuration does, or else Error.
ExitCode run(const RunConfig& config, const std::optional<state::ResumePoint>& resume,
             const std::optional<Recovery>& recovery, comm::MpiEnvironment& mpi, const Log& log,
             StartNotice* starting = nullptr);

}  // namespace dtrain::train
