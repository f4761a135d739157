#pragma once

#include "comm/groups.hpp"
#include "comm/mpi/communicator.hpp"
#include "topology/mesh.hpp"

namespace dtrain::state {

/// The ranks over which a state is spread. Everything is borrowed.
struct Ranks {
  comm::Communicator& world;
  comm::Groups& groups;
  const topology::Mesh& mesh;

  int rank() const { return world.rank(); }
  topology::MeshCoordinates where() const { return mesh.coordinates(rank()); }
};

}  // namespace dtrain::state
