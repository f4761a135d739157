#include "train/setup/topology_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "core/counted.hpp"

namespace dtrain::train {
namespace {

bool are_at_one_place(const record::TopologyRow& a, const record::TopologyRow& b) {
  return a.rank == b.rank && a.node == b.node && a.hostname.view() == b.hostname.view() &&
         a.local_rank == b.local_rank && a.device.view() == b.device.view() &&
         a.device_uuid.view() == b.device_uuid.view() && a.numa_node == b.numa_node &&
         a.cpus.view() == b.cpus.view() && a.data_index == b.data_index && a.pipe_index == b.pipe_index &&
         a.tensor_index == b.tensor_index && std::isnan(a.left_at_s) && std::isnan(b.left_at_s);
}

/// Whether the rows from `begin` on say the same as the generation before them.
bool are_newest_again(std::span<const record::TopologyRow> rows, std::ptrdiff_t begin) {
  const auto earlier = rows.first(static_cast<std::size_t>(begin));
  const auto now = rows.subspan(static_cast<std::size_t>(begin));
  if (earlier.empty()) return false;
  const auto newest = std::ranges::find(earlier, earlier.back().generation, &record::TopologyRow::generation);
  return std::ranges::equal(newest, earlier.end(), now.begin(), now.end(), are_at_one_place);
}

}  // namespace

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
  const auto before = std::ssize(rows);
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
  if (are_newest_again(rows, before)) rows.resize(static_cast<std::size_t>(before));
  return rows;
}

}  // namespace dtrain::train
