#pragma once

#include <cstdint>
#include <vector>

#include "record/rows.hpp"
#include "topology/cluster.hpp"
#include "topology/mesh.hpp"

namespace dtrain::train {

/// Whether the rank of that number at the start is still there.
bool is_in(const topology::Cluster& cluster, std::int64_t first_rank);

/// For files: `earlier`, and then where the ranks are now, `now_s` after the start. A rank that was lost
/// before it had recorded anything has left by now. Of a run that is resumed with all ranks where they were
/// there are no new rows.
std::vector<record::TopologyRow> topology_rows(std::vector<record::TopologyRow> earlier,
                                               const topology::Cluster& cluster, const topology::Mesh& mesh,
                                               double now_s);

}  // namespace dtrain::train
