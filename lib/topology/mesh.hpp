#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/cluster.hpp"

namespace dtrain::topology {

enum class Axis { data, pipe, tensor };  ///< Slowest to fastest.

/// How many ranks lie along each axis.
struct MeshShape {
  int data = 1;
  int pipe = 1;
  int tensor = 1;

  int size() const { return data * pipe * tensor; }
  int model_ranks() const { return pipe * tensor; }
  std::string to_string() const;  ///< `data=4,pipe=2,tensor=1`.

  /// Reads `data=4,pipe=2`; missing axes are 1, a missing data is `world_size` over the rest.
  /// Throws Error (exit code 2) that names the numbers that would do.
  static MeshShape parse(std::string_view text, int world_size);
};

struct MeshCoordinates {
  int data = 0;
  int pipe = 0;
  int tensor = 0;
};

/// Which ranks are neighbours: by where they run, or by their numbers.
enum class RankOrder { placed, launched };
RankOrder parse_rank_order(std::string_view name);  ///< placed, launched. Throws Error (exit code 2).
std::string_view name_of(RankOrder order);

/// The ranks of a job arranged on data x pipe x tensor.
class Mesh {
 public:
  /// Placed: as seats() has it. Launched: as the launcher numbered the ranks, tensor fastest.
  /// Throws Error when shape.size() is not cluster.world_size().
  Mesh(const Cluster& cluster, MeshShape shape, RankOrder order = RankOrder::placed);

  const MeshShape& shape() const { return shape_; }
  MeshCoordinates coordinates(int rank) const;
  int rank_at(MeshCoordinates where) const;

  /// The ranks that differ from `rank` along `axis` only, in order of that coordinate; contains `rank`.
  std::vector<int> group(int rank, Axis axis) const;

  /// Whether some group along `axis` has ranks on more than one node.
  bool crosses_nodes(const Cluster& cluster, Axis axis) const;

  /// How many ranks of each group along `axis` are on each of its nodes; 0 where they are not as many
  /// everywhere.
  int ranks_on_a_node(const Cluster& cluster, Axis axis) const;

 private:
  MeshShape shape_;
  std::vector<int> ordered_;   ///< position on the mesh -> rank
  std::vector<int> position_;  ///< rank -> position on the mesh
};

}  // namespace dtrain::topology
