#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "topology/fabric.hpp"

namespace dtrain::comm {

/// When this rank sees messages that came over an emulated link: the bytes of a link pass one after another,
/// and the latency follows. Each pair of ranks has a link of its own, in each direction; a message's time
/// counts from when it was here.
class LinkDelays {
 public:
  /// `fabric` is borrowed. `rank`: in MPI_COMM_WORLD at the start.
  LinkDelays(const topology::Fabric& fabric, int rank) : fabric_(fabric), rank_(rank) {}

  /// The moment (steady_ns) at which `bytes` from `from` may be seen that are here at `now_ns`.
  std::int64_t due_ns(int from, std::size_t bytes, std::int64_t now_ns);

 private:
  const topology::Fabric& fabric_;
  int rank_;
  std::map<int, std::int64_t> busy_until_ns_;  // by sender
};

}  // namespace dtrain::comm
