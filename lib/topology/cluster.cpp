#include "topology/cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.hpp"

namespace dtrain::topology {
namespace {

int machine_of(const RankPlace& place) { return place.machine >= 0 ? place.machine : place.node; }

}  // namespace

int Cluster::node_count() const {
  int nodes = 0;
  for (const RankPlace& place : ranks) nodes = std::max(nodes, place.node + 1);
  return nodes;
}

int Cluster::local_size(int node) const {
  return static_cast<int>(std::count_if(ranks.begin(), ranks.end(),
                                        [node](const RankPlace& place) { return place.node == node; }));
}

std::vector<int> Cluster::leaders() const {
  std::vector<int> first(static_cast<std::size_t>(node_count()), -1);
  for (const RankPlace& place : ranks) {
    int& leader = first[static_cast<std::size_t>(place.node)];
    if (leader < 0) leader = place.rank;
  }
  return first;
}

double Cluster::cores_per_rank(int rank) const {
  const int machine = machine_of(ranks.at(static_cast<std::size_t>(rank)));
  std::set<int> cores;
  int sharing = 0;
  for (const RankPlace& place : ranks) {
    if (machine_of(place) != machine) continue;
    cores.insert(place.cpus.begin(), place.cpus.end());
    ++sharing;
  }
  return std::max<double>(1.0, static_cast<double>(cores.size())) / sharing;
}

std::vector<std::vector<int>> Cluster::parted_machines() const {
  std::map<int, std::vector<int>> ranks_of;
  std::map<int, std::set<int>> nodes_of;
  for (const RankPlace& place : ranks) {
    ranks_of[machine_of(place)].push_back(place.first_rank);
    nodes_of[machine_of(place)].insert(place.node);
  }
  std::vector<std::vector<int>> parted;
  for (auto& [machine, of_machine] : ranks_of) {
    if (nodes_of[machine].size() > 1) parted.push_back(std::move(of_machine));
  }
  return parted;
}

bool Cluster::shares_gpus() const { return !shared_gpus().empty(); }

std::vector<std::string> Cluster::shared_gpus() const {
  // A launcher may show each rank other GPUs: the same number need not be the same one. To NCCL slices of one
  // card (MIG) are one GPU.
  std::map<std::pair<int, std::string>, std::vector<const RankPlace*>> users;
  for (const RankPlace& place : ranks) {
    if (place.gpu < 0) continue;
    const auto name = !place.device_bus.empty()    ? place.device_bus
                      : !place.device_uuid.empty() ? place.device_uuid
                                                   : std::to_string(place.gpu);
    users[{machine_of(place), name}].push_back(&place);
  }
  std::vector<std::string> sentences;
  for (const auto& [gpu, of_gpu] : users) {
    if (of_gpu.size() < 2) continue;
    std::vector<int> names;
    for (const RankPlace* place : of_gpu) names.push_back(place->first_rank);
    sentences.push_back(fmt::format("ranks {} share GPU {} of {}", fmt::join(names, ", "),
                                    of_gpu.front()->gpu, of_gpu.front()->hostname));
  }
  return sentences;
}

void Cluster::validate() const {
  std::set<std::pair<int, int>> local_ranks;
  for (int rank = 0; rank < world_size(); ++rank) {
    const RankPlace& place = ranks[static_cast<std::size_t>(rank)];
    require(place.rank == rank, fmt::format("place {} claims to be rank {}", rank, place.rank),
            {.subject = "cluster", .advice = "list the ranks in order"});
    require(place.node >= 0 && local_size(place.node) > place.local_rank && place.local_rank >= 0 &&
                local_ranks.emplace(place.node, place.local_rank).second,
            fmt::format("rank {} cannot be local rank {} of node {}", rank, place.local_rank, place.node),
            {.subject = "cluster", .advice = "number nodes and local ranks from 0 without gaps"});
  }
  for (int node = 0; node < node_count(); ++node) {
    require(local_size(node) > 0, fmt::format("node {} has no rank", node),
            {.subject = "cluster", .advice = "number nodes from 0 without gaps"});
  }
}

Cluster uniform_cluster(int nodes, int ranks_per_node) {
  Cluster cluster;
  for (int rank = 0; rank < nodes * ranks_per_node; ++rank) {
    RankPlace place;
    place.rank = rank;
    place.first_rank = rank;
    place.node = rank / ranks_per_node;
    place.hostname = "node" + std::to_string(place.node);
    place.local_rank = rank % ranks_per_node;
    place.cpus = {place.local_rank};
    cluster.ranks.push_back(place);
  }
  return cluster;
}

}  // namespace dtrain::topology
