#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/mpi/communicator.hpp"
#include "comm/survey/binding.hpp"
#include "topology/cluster.hpp"

namespace dtrain::comm {

/// What only the caller knows of this rank's accelerator.
struct LocalDevice {
  int gpu = -1;      ///< Index on the node; -1 for the CPU.
  std::string uuid;  ///< Of that GPU.
  std::string bus;   ///< Of its card, `0000:3b:00.0`; empty: not known.
  int island = -1;   ///< Of the node's GPUs that NVLink joins.
};

/// Asks MPI and the operating system where every rank runs. `cpus` is this rank's mask as read before any
/// library could change it (affinity_mask() early in main), `switches` those above the node where they are
/// known (RankPlace). Collective over `world`; the same value on every rank.
topology::Cluster discover_cluster(const Communicator& world, const std::vector<int>& cpus,
                                   const LocalDevice& device = {}, const std::string& switches = {});

/// Throws Error (exit code 2) when srun without its MPI plugin started N jobs of one rank instead of one job
/// of N. `announced_tasks` is SLURM_NTASKS, read by app, and given only where srun started this process
/// itself: `mpirun -np 1` inside a larger allocation is no mistake.
void check_launch(int world_size, std::optional<int> announced_tasks);

}  // namespace dtrain::comm
