#pragma once

#include <functional>
#include <vector>

#include "comm/mpi/communicator.hpp"
#include "core/clock.hpp"
#include "topology/cluster.hpp"

namespace dtrain::comm {

struct ClockOffset {
  double offset_s = 0;       ///< How far a clock is ahead of rank 0's.
  double uncertainty_s = 0;  ///< It may be off by that much: half of the quickest question and answer.
};

/// The wall clock of each node's first rank against rank 0's, by node: of several questions the one that was
/// answered quickest, its answer taken to come from the middle of the wait (Cristian 1989, Probabilistic
/// clock synchronization). `now_s`: this rank's clock. Collective over `world`; the same value on every rank.
std::vector<ClockOffset> measure_clock_offsets(const Communicator& world, const topology::Cluster& cluster,
                                               const std::function<double()>& now_s = wall_s);

}  // namespace dtrain::comm
