#pragma once

#include <memory>
#include <string>

#include "comm/collectives/algorithm_table.hpp"
#include "comm/comm_config.hpp"
#include "comm/group.hpp"
#include "comm/mpi/communicator.hpp"
#include "comm/queue.hpp"
#include "core/span_sink.hpp"
#include "topology/cluster.hpp"
#include "topology/mesh.hpp"

namespace dtrain::comm {

class FlightRecorder;
class Traffic;

/// The queue of this rank and its groups on the mesh. Move-only; destroyed before MPI is finalised.
class Groups {
 public:
  ~Groups();
  Groups(Groups&&) noexcept;
  Groups& operator=(Groups&&) noexcept;

  Group& world();
  Group& data();  ///< Ranks that differ along the data axis only.
  /// Of the data group the ranks on this node, and those on its other nodes in this rank's place. Null unless
  /// CommConfig::splits_data, and where each data group has several nodes, with as many ranks, more than one.
  Group* data_in_node();
  Group* data_across();
  /// The ranks of data() once more, with communicators of their own: what is gathered there does not queue
  /// behind sums in data(). Null unless CommConfig::gathers_apart, and where there are several.
  Group* data_gathers();
  Group& pipe();
  Group& tensor();
  Group& node();  ///< The ranks of this node.
  bool is_leader() const;
  Group& leaders();  ///< The first rank of each node. Throws Error where is_leader() is false.
  /// What `auto` takes from now on in groups that span nodes. The same on every rank. Collective.
  void use(const AlgorithmTable& table);
  Queue& queue();
  /// Keeps this rank's operations and spans, which pass through to the sink of make_groups().
  FlightRecorder& recorder();
  /// Counts the payload bytes between this rank and each other.
  Traffic& traffic();
  /// Throws Error naming a rank that is gone, if one is: for callers to which MPI reported an error.
  void check_deaths();
  const std::string& backend_name() const;  ///< `mpi`, `nccl 2.28.9 (/path/libnccl.so.2)`: for the log.

 private:
  friend Groups make_groups(const Communicator&, const topology::Cluster&, const topology::Mesh&,
                            const CommConfig&, SpanSink&);
  struct State;
  explicit Groups(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Bytes of /dev/shm that make_groups() reserves on a node, SharedBuffers aside.
std::size_t shared_memory_for(const topology::Cluster& cluster, const topology::Mesh& mesh, int node);

/// Makes all groups, in one order on every rank. Collective over `world`; `sink` outlives the result.
/// `cluster` may invent nodes: ranks of one invented node must be able to share memory.
Groups make_groups(const Communicator& world, const topology::Cluster& cluster, const topology::Mesh& mesh,
                   const CommConfig& config, SpanSink& sink);

}  // namespace dtrain::comm
