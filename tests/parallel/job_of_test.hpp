#pragma once

#include "comm/discover.hpp"
#include "comm/groups.hpp"
#include "core/span_sink.hpp"

namespace dtrain::parallel {

/// All ranks of the test along the data axis, on one node, every wait limited to 20 s.
class JobOfTest {
 public:
  comm::Group& data() { return groups_.data(); }
  comm::Queue& queue() { return groups_.queue(); }
  int rank() { return world_.rank(); }

 private:
  NullSpanSink sink_;
  comm::Communicator world_ = comm::Communicator::duplicate(MPI_COMM_WORLD);
  topology::Cluster cluster_ = comm::discover_cluster(world_, comm::affinity_mask());
  comm::Groups groups_ = comm::make_groups(
      world_, cluster_, topology::Mesh(cluster_, {.data = world_.size()}), {.timeout_s = 20}, sink_);
};

}  // namespace dtrain::parallel
