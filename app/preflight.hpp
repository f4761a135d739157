#pragma once

#include <vector>

#include "comm/mpi/communicator.hpp"
#include "core/log.hpp"
#include "doctor/cores.hpp"
#include "doctor/finding.hpp"
#include "environment.hpp"
#include "topology/cluster.hpp"
#include "train/config/config.hpp"

namespace dtrain::app {

// What `doctor` and every training run look at alike.

/// As rank 0's environment has it: what mpirun starts on other nodes sees less of the Slurm job. `spares`:
/// ranks that were started and wait outside `world`. Collective over `world`; the same value on every rank.
std::vector<doctor::Finding> judge_launch_of(const comm::Communicator& world,
                                             const topology::Cluster& cluster, const Environment& environment,
                                             int spares = 0);

/// Collective over `world`; the same value on every rank.
std::vector<doctor::Finding> judge_cores_of(const comm::Communicator& world, const topology::Cluster& cluster,
                                            const Environment& environment,
                                            const doctor::ThreadRequest& request);

/// LibTorch, MPI and HDF5 as this process has loaded them.
std::vector<doctor::Finding> judge_libraries();

/// The look before a training run, for what costs no time and would otherwise show late or never: a job that
/// its launcher has let fall apart is refused (Error, exit code 2, on every rank); any other problem is a
/// warning of rank 0's with its remedy. Collective over `world`.
void look_before_run(const comm::Communicator& world, const Environment& environment,
                     const train::RunConfig& config, const Log& log);

}  // namespace dtrain::app
