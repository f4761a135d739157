#include "topology/mesh.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "topology/placement.hpp"

namespace dtrain::topology {

RankOrder parse_rank_order(std::string_view name) {
  if (name == "placed") return RankOrder::placed;
  if (name == "launched") return RankOrder::launched;
  throw usage_error("there is no such order", fmt::format("--rank-order {}", name), "use placed or launched");
}

std::string_view name_of(RankOrder order) { return order == RankOrder::placed ? "placed" : "launched"; }

Mesh::Mesh(const Cluster& cluster, MeshShape shape, RankOrder order) : shape_(shape) {
  const int world_size = cluster.world_size();
  if (shape.data < 1 || shape.pipe < 1 || shape.tensor < 1 || shape.size() != world_size) {
    throw usage_error(fmt::format("the mesh needs {} ranks but the job has {}", shape.size(), world_size),
                      "--mesh " + shape.to_string(), "change --mesh, or start that many ranks");
  }
  ordered_ = seats(cluster, shape);
  if (order == RankOrder::launched) std::iota(ordered_.begin(), ordered_.end(), 0);
  position_.resize(ordered_.size());
  for (std::size_t position = 0; position < ordered_.size(); ++position) {
    position_[static_cast<std::size_t>(ordered_[position])] = static_cast<int>(position);
  }
}

MeshCoordinates Mesh::coordinates(int rank) const {
  const int position = position_.at(static_cast<std::size_t>(rank));
  return {.data = position / shape_.model_ranks(),
          .pipe = position / shape_.tensor % shape_.pipe,
          .tensor = position % shape_.tensor};
}

int Mesh::rank_at(MeshCoordinates where) const {
  const int position = (where.data * shape_.pipe + where.pipe) * shape_.tensor + where.tensor;
  return ordered_.at(static_cast<std::size_t>(position));
}

std::vector<int> Mesh::group(int rank, Axis axis) const {
  MeshCoordinates where = coordinates(rank);
  int MeshCoordinates::*along = &MeshCoordinates::data;
  int extent = shape_.data;
  if (axis == Axis::pipe) {
    along = &MeshCoordinates::pipe;
    extent = shape_.pipe;
  } else if (axis == Axis::tensor) {
    along = &MeshCoordinates::tensor;
    extent = shape_.tensor;
  }
  std::vector<int> ranks;
  for (int index = 0; index < extent; ++index) {
    where.*along = index;
    ranks.push_back(rank_at(where));
  }
  return ranks;
}

bool Mesh::crosses_nodes(const Cluster& cluster, Axis axis) const {
  return std::ranges::any_of(cluster.ranks, [&](const RankPlace& place) {
    const int first = group(place.rank, axis).front();
    return cluster.ranks[static_cast<std::size_t>(first)].node != place.node;
  });
}

int Mesh::ranks_on_a_node(const Cluster& cluster, Axis axis) const {
  const auto node_of = [&](int rank) { return cluster.ranks[static_cast<std::size_t>(rank)].node; };
  int found = 0;
  for (const RankPlace& place : cluster.ranks) {
    const auto members = group(place.rank, axis);
    const auto here = static_cast<int>(
        std::ranges::count_if(members, [&](int rank) { return node_of(rank) == place.node; }));
    if (found != 0 && found != here) return 0;
    found = here;
  }
  return found;
}

}  // namespace dtrain::topology
