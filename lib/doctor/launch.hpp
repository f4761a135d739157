#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.hpp"

namespace dtrain::doctor {

/// How a job was started, and what came of it.
struct LaunchFacts {
  int world_size = 1;            ///< As MPI counts ranks,
  int nodes = 1;                 ///< and as ranks can share memory.
  std::string launcher;          ///< `mpirun` or `srun`; empty: started by hand.
  std::optional<int> announced;  ///< Processes that the launcher said it starts.
  // Of the Slurm job around it, where there is one.
  std::optional<int> slurm_tasks;
  std::optional<int> slurm_nodes;
};

/// Whether as many ranks as were asked for are in one job, on the nodes that were allocated. The first
/// finding says what there is.
std::vector<Finding> judge_launch(const LaunchFacts& facts);

/// On a rank whose Slurm job is not that of rank 0: a variable of another job has stayed behind.
std::vector<Finding> judge_slurm_job(const std::string& mine, const std::string& first_ranks);

/// `builds`: each rank's build_id().
std::vector<Finding> judge_builds(const std::vector<std::string>& builds, const topology::Cluster& cluster);

}  // namespace dtrain::doctor
