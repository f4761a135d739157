#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/shards/column.hpp"
#include "data/source.hpp"

namespace dtrain::data {

/// The same columns out of one copy per node in POSIX shared memory, which the ranks of the team fill
/// together, each its part of every column. Collective over the team. The memory's name is gone when this
/// returns, the memory itself with the last column. Throws data_error on every rank of the team when one
/// failed: no room in /dev/shm, or damaged files.
std::vector<std::shared_ptr<const Column>> in_node_memory(
    const std::vector<std::shared_ptr<const Column>>& columns, const std::string& name, const NodeTeam& team);

}  // namespace dtrain::data
