#pragma once

#include <memory>
#include <vector>

#include "data/shards/column.hpp"
#include "data/source.hpp"

namespace dtrain::data {

/// The same columns out of one copy per node in shared memory (see open_shared_file), which the ranks of the
/// team fill together, each its part of every column. Collective over the team. The memory is gone with the
/// last column. Throws Error (exit code 3) on every rank of the team when one failed: no room in /dev/shm, or
/// damaged files.
std::vector<std::shared_ptr<const Column>> in_node_memory(
    const std::vector<std::shared_ptr<const Column>>& columns, const NodeTeam& team);

}  // namespace dtrain::data
