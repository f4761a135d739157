#pragma once

#include "comm/groups.hpp"
#include "comm/survey/discover.hpp"
#include "core/span_sink.hpp"

namespace dtrain::parallel {

/// All ranks of the test on one node, along one axis of the mesh, every wait limited to 20 s.
class JobOfTest {
 public:
  explicit JobOfTest(topology::Axis axis = topology::Axis::data, comm::Drive drive = comm::Drive::inline_,
                     bool gathers_apart = false)
      : groups_(comm::make_groups(world_, cluster_, topology::Mesh(cluster_, shape(axis, world_.size())),
                                  {.drive = drive, .timeout_s = 20, .gathers_apart = gathers_apart}, sink_)) {
  }
  comm::Group& world() { return groups_.world(); }
  comm::Group& data() { return groups_.data(); }
  /// Of one rank, and without `gathers_apart`, those of data().
  comm::Group& data_gathers() {
    return groups_.data_gathers() != nullptr ? *groups_.data_gathers() : groups_.data();
  }
  comm::Group& pipe() { return groups_.pipe(); }
  comm::Group& tensor() { return groups_.tensor(); }
  SpanSink& sink() { return sink_; }
  comm::Queue& queue() { return groups_.queue(); }
  int rank() { return world_.rank(); }

 private:
  static topology::MeshShape shape(topology::Axis axis, int ranks) {
    return axis == topology::Axis::data ? topology::MeshShape{.data = ranks}
                                        : topology::MeshShape{.pipe = ranks};
  }
  NullSpanSink sink_;
  comm::Communicator world_ = comm::Communicator::duplicate(MPI_COMM_WORLD);
  topology::Cluster cluster_ = comm::discover_cluster(world_, comm::affinity_mask());
  comm::Groups groups_;
};

}  // namespace dtrain::parallel
