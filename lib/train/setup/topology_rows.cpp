#include "train/setup/topology_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/counted.hpp"

namespace dtrain::train {

bool is_in(const topology::Cluster& cluster, std::int64_t first_rank) {
  return std::ranges::find(cluster.ranks, first_rank, &topology::RankPlace::first_rank) !=
         cluster.ranks.end();
}

std::vector<record::TopologyRow> topology_rows(std::vector<record::TopologyRow> earlier,
                                               const topology::Cluster& cluster, const topology::Mesh& mesh,
                                               double now_s) {
  auto rows = std::move(earlier);
  const std::int64_t generation = rows.empty() ? 0 : rows.back().generation + 1;
  for (auto& row : rows) {
    const bool was_there = row.generation + 1 == generation && std::isnan(row.left_at_s);
    if (was_there && !is_in(cluster, row.rank)) row.left_at_s = now_s;
  }
  for (const auto& place : cluster.ranks) {
    const auto at = mesh.coordinates(place.rank);
    rows.push_back({.rank = place.first_rank,
                    .node = place.node,
                    .hostname = place.hostname,
                    .local_rank = place.local_rank,
                    .device = place.gpu < 0 ? std::string("cpu") : fmt::format("cuda:{}", place.gpu),
                    .device_uuid = place.device_uuid,
                    .numa_node = place.numa_node,
                    .cpus = number_list(place.cpus),
                    .data_index = at.data,
                    .pipe_index = at.pipe,
                    .tensor_index = at.tensor,
                    .generation = generation});
  }
  return rows;
}

}  // namespace dtrain::train
