#pragma once

#include <string>
#include <vector>

#include "doctor/finding.hpp"
#include "topology/cluster.hpp"

namespace dtrain::doctor {

/// Compute threads that were asked for on each rank.
struct ThreadRequest {
  int threads = 0;     ///< 0: as many as the mask has cores.
  std::string source;  ///< What asks: `--threads `; a number makes it whole.
};

/// Whether the cores of each rank's mask do for its threads and one more for the loader.
/// `launcher_cores`: by rank, how many its launcher may use; 0 where that is not known.
std::vector<Finding> judge_cores(const topology::Cluster& cluster, const ThreadRequest& request,
                                 const std::vector<int>& launcher_cores);

/// How many cores the process that started this one may use; 0 where the system does not say.
int cores_of_parent();

}  // namespace dtrain::doctor
