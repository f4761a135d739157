#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "topology/cluster.hpp"

namespace dtrain::topology {

/// A machine that is not there: ranks that compute slowly, nodes, and the links between them (`--emulate`). A
/// plain value. Ranks are those in MPI_COMM_WORLD at the start.
struct Fabric {
  /// How it shows: as delays of the real run, or in computed times beside a run at full speed.
  enum class Clock { real, computed };

  /// What a message takes: latency_s + bytes / bytes_per_s.
  struct Link {
    double latency_s = 0;
    double bytes_per_s = std::numeric_limits<double>::infinity();

    double seconds(double bytes) const { return latency_s + bytes / bytes_per_s; }
  };
  /// `rank` computes `factor` times as long in the steps [first_step, last_step].
  struct Slow {
    int rank = 0;
    double factor = 1;
    std::int64_t first_step = 1;
    std::int64_t last_step = std::numeric_limits<std::int64_t>::max();
    std::string where = {};  ///< `line 7` of the file.
  };
  /// The link of nodes `a` and `b`, or of all nodes without one of their own.
  struct Between {
    bool of_all = true;
    int a = 0;
    int b = 0;
    Link link = {};
    std::string where = {};
  };

  std::string file = {};  ///< That describes it; empty: nothing is emulated.
  Clock clock = Clock::real;
  double compute_s_per_sample = 0;  ///< On a rank that is not slow, for Clock::computed.
  double encode_s_per_byte = 0;     ///< Of values that are rounded and read back for their way, likewise.
  std::vector<std::vector<int>> nodes = {};  ///< The ranks of each; empty: the nodes that there are.
  std::vector<std::string> where_nodes = {};
  std::vector<Slow> slow = {};
  std::vector<Between> links = {};

  bool exists() const { return !file.empty(); }
  bool computes_times() const { return exists() && clock == Clock::computed; }
  bool delays_messages() const { return exists() && clock == Clock::real && !links.empty(); }

  /// How many times as long `rank` computes in `step`; 1: as usual.
  double slowness(int rank, std::int64_t step) const;
  /// The link between two ranks: the one of their nodes, which costs nothing within a node.
  Link link(int rank, int other) const;
  /// Between invented nodes, the slowest in bytes and the one of the longest latency together.
  Link slowest_link(const std::vector<int>& ranks) const;
  /// Invented nodes that have one of the ranks; 1 where none are invented.
  int nodes_of(const std::vector<int>& ranks) const;

  /// `rank 3 computes 4 times as long; 4 nodes, 5 ms and 1 Gb/s between them; times are computed`.
  std::string in_words() const;

  /// Throws Error (exit code 2), naming file and line, at the first value that cannot be meant on
  /// `world_size` ranks.
  void validate(int world_size) const;

 private:
  int node_of(int rank) const;  ///< -1: none is invented.
};

/// `cluster` with its ranks on the fabric's nodes. Throws Error (exit code 2) where ranks of an invented node
/// share no memory.
Cluster on_fabric(Cluster cluster, const Fabric& fabric);

}  // namespace dtrain::topology
