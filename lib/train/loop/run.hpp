#pragma once

#include <functional>
#include <optional>

#include "comm/mpi/mpi_environment.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/start_notice.hpp"
#include "state/resume_point.hpp"
#include "train/config/config.hpp"
#include "train/recovery/recovery.hpp"

namespace dtrain::train {

/// What the program that calls run() has to do with its start.
struct Starting {
  StartNotice* notice = nullptr;  ///< Told what a start is busy with; null: nothing.
  /// Called when nothing speaks against the run any more, before its first file: removes what an earlier run
  /// of its name has left. Collective over mpi.world(). Empty: nothing is to be done.
  std::function<void()> before_files = {};
  /// Called when the start is done, before the first step. Empty: nothing is to be done.
  std::function<void()> before_steps = {};
};

/// Trains a model as `config` says and leaves a run folder behind: set up, build the mesh, create the model,
/// create the loader, train, clean up. `config` is resolved and validated, and the same on every rank. Goes
/// on from `resume` where that is given, on whatever layout. Returns ExitCode::stopped when it was asked to
/// stop and has left a checkpoint. `recovery`: this is one part of a run, which may go on after others.
/// Collective over mpi.world(). Throws Error; where ranks were lost and the run can go on without them, the
/// others have left them behind then: Recovery::has_left().
ExitCode run(const RunConfig& config, const std::optional<state::ResumePoint>& resume, Recovery& recovery,
             comm::MpiEnvironment& mpi, const Log& log, const Starting& starting);

}  // namespace dtrain::train
