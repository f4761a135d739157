#pragma once

#include "comm/mpi/communicator.hpp"
#include "topology/cluster.hpp"

namespace dtrain::comm {

/// Waits until all ranks have come, leaving the cores to others meanwhile. Collective over `world`. On rank 0
/// throws Error that names the ranks that have not come within `limit_s`; the others wait for as long as it
/// takes.
void roll_call(const Communicator& world, const topology::Cluster& cluster, double limit_s);

}  // namespace dtrain::comm
