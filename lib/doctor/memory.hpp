#pragma once

#include <cstdint>
#include <vector>

#include "doctor/finding.hpp"
#include "topology/cluster.hpp"

namespace dtrain::doctor {

/// /dev/shm of one node.
struct SharedMemoryFacts {
  std::int64_t total_bytes = -1;  ///< Negative: there is none.
  std::int64_t free_bytes = 0;
  std::int64_t needed_bytes = 0;  ///< By the groups of the ranks on that node, whatever the model.
};

SharedMemoryFacts look_at_shared_memory(std::int64_t needed_bytes);

Finding judge_shared_memory(const SharedMemoryFacts& facts);

/// Machines whose ranks do not see one another's shared memory, as in a container for each.
std::vector<Finding> judge_sharing(const topology::Cluster& cluster);

/// `0.5 GiB`, `64 MiB`, for the lines of findings.
std::string bytes_in_words(double bytes);

}  // namespace dtrain::doctor
