#include "topology/placement.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "core/slice.hpp"

namespace dtrain::topology {
namespace {

using Block = std::vector<int>;  // Ranks that stay next to each other.

/// What a rank is in, from the network down.
constexpr int kLevels = 4;
using Path = std::array<std::string, kLevels>;

const RankPlace& place_of(const Cluster& cluster, int rank) {
  return cluster.ranks[static_cast<std::size_t>(rank)];
}

Path path_of(const RankPlace& place) {
  return {place.switches, std::to_string(place.node), std::to_string(place.island),
          std::to_string(place.numa_node)};
}

/// Neighbours in the machine are neighbours in this order.
auto order_key(const RankPlace& place) {
  return std::tie(place.switches, place.node, place.island, place.numa_node, place.gpu, place.rank);
}

void sort_by_place(const Cluster& cluster, std::vector<Block>& blocks) {
  std::ranges::sort(blocks, [&cluster](const Block& a, const Block& b) {
    return order_key(place_of(cluster, a.front())) < order_key(place_of(cluster, b.front()));
  });
}

/// Joins blocks into groups of `size` blocks, within each unit of the lowest level first.
class Packing {
 public:
  Packing(const Cluster& cluster, int size) : cluster_(cluster), size_(static_cast<std::size_t>(size)) {}

  /// `blocks` in the order of their places, as many as make whole groups.
  std::vector<Block> pack(const std::vector<Block>& blocks) {
    pack_level(blocks, 0);
    return std::move(groups_);
  }

 private:
  /// What is left over on `level`.
  std::vector<Block> pack_level(const std::vector<Block>& blocks, int level) {
    std::vector<Block> left;
    if (level == kLevels) {
      left = blocks;
    } else {
      // A block that spans two units may lie between blocks of one: these belong together all the same.
      std::map<std::string, std::vector<Block>> units;
      for (const Block& block : blocks) {
        if (within_one(block, level)) {
          units[unit(block.front(), level).back()].push_back(block);
        } else {
          left.push_back(block);
        }
      }
      for (const auto& [name, of_unit] : units)
        std::ranges::move(pack_level(of_unit, level + 1), std::back_inserter(left));
      sort_by_place(cluster_, left);
    }
    std::size_t used = 0;
    for (; left.size() - used >= size_; used += size_) {
      Block group;
      for (std::size_t i = used; i < used + size_; ++i) {
        group.insert(group.end(), left[i].begin(), left[i].end());
      }
      groups_.push_back(std::move(group));
    }
    left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(used));
    return left;
  }

  /// Of that level and those above it.
  std::vector<std::string> unit(int rank, int level) const {
    const Path path = path_of(place_of(cluster_, rank));
    return {path.begin(), path.begin() + level + 1};
  }
  bool within_one(const Block& block, int level) const {
    return std::ranges::all_of(block,
                               [&](int rank) { return unit(rank, level) == unit(block.front(), level); });
  }

  const Cluster& cluster_;
  std::size_t size_;
  std::vector<Block> groups_;
};

}  // namespace

std::vector<int> seats(const Cluster& cluster, MeshShape shape) {
  std::vector<Block> blocks(cluster.ranks.size());
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) blocks[rank] = {static_cast<int>(rank)};
  sort_by_place(cluster, blocks);
  for (const int size : {shape.tensor, shape.pipe}) {
    blocks = Packing(cluster, size).pack(blocks);
    sort_by_place(cluster, blocks);
  }
  std::vector<int> ranks;
  for (const Block& block : blocks) ranks.insert(ranks.end(), block.begin(), block.end());
  return ranks;
}

Link link_between(const RankPlace& a, const RankPlace& b) {
  if (a.node != b.node) return Link::network;
  if (a.gpu >= 0 && b.gpu >= 0) {
    if (a.gpu == b.gpu) return Link::same_gpu;
    return a.island == b.island ? Link::nvlink : Link::pcie;
  }
  return a.numa_node >= 0 && a.numa_node == b.numa_node ? Link::numa_node : Link::memory;
}

std::string_view name_of(Link link) {
  switch (link) {
    case Link::same_gpu:
      return "the same GPU";
    case Link::nvlink:
      return "NVLink";
    case Link::pcie:
      return "PCIe";
    case Link::numa_node:
      return "memory of one NUMA node";
    case Link::memory:
      return "memory";
    case Link::network:
      return "network";
  }
  return "";
}

std::vector<int> islands(const std::vector<Gpu>& gpus) {
  std::vector<int> island(gpus.size());
  std::iota(island.begin(), island.end(), 0);
  const auto join = [&island](int a, int b) {
    const int kept = std::min(a, b);
    const int gone = std::max(a, b);
    std::ranges::replace(island, gone, kept);
  };
  int on_switch = -1;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    for (const int peer : gpus[gpu].nvlinks) {
      const auto self = static_cast<int>(gpu);
      if (peer != self) join(island[gpu], island[static_cast<std::size_t>(peer)]);
      if (peer == self && on_switch >= 0) join(island[gpu], island[static_cast<std::size_t>(on_switch)]);
      if (peer == self) on_switch = self;
    }
  }
  std::map<int, int> number;
  for (int& mine : island) mine = number.emplace(mine, static_cast<int>(number.size())).first->second;
  return island;
}

std::vector<int> deal_gpus(const std::vector<Gpu>& gpus, const std::vector<int>& numa_node_of_rank) {
  std::vector<int> dealt(numa_node_of_rank.size(), -1);
  if (gpus.empty()) return dealt;
  const auto ranks = static_cast<int>(dealt.size());
  const auto count = static_cast<int>(gpus.size());
  const int each = ranks / count;
  int more = ranks % count;
  std::vector<int> taken(gpus.size(), 0);
  const auto take = [&](std::size_t rank, auto&& fits) {
    for (std::size_t gpu = 0; dealt[rank] < 0 && gpu < gpus.size(); ++gpu) {
      if (taken[gpu] > each || (taken[gpu] == each && more == 0) || !fits(gpus[gpu])) continue;
      if (taken[gpu]++ == each) --more;
      dealt[rank] = static_cast<int>(gpu);
    }
  };
  // Ranks with a GPU beside them first, or others would take it.
  for (std::size_t rank = 0; rank < dealt.size(); ++rank) {
    take(rank, [&](const Gpu& gpu) {
      return numa_node_of_rank[rank] >= 0 && gpu.numa_node == numa_node_of_rank[rank];
    });
  }
  for (std::size_t rank = 0; rank < dealt.size(); ++rank) {
    take(rank, [](const Gpu&) { return true; });
  }
  return dealt;
}

std::vector<int> share_of_cores(const std::vector<std::vector<int>>& cores, int local_rank, int local_size) {
  const auto count = static_cast<int>(cores.size());
  if (count == 0) return {};
  if (local_size >= count) return cores[static_cast<std::size_t>(local_rank % count)];
  std::vector<int> share;
  const Range range = part_of(count, local_rank, local_size);
  for (std::int64_t core = range.begin; core < range.end; ++core) {
    const auto& threads = cores[static_cast<std::size_t>(core)];
    share.insert(share.end(), threads.begin(), threads.end());
  }
  std::ranges::sort(share);
  return share;
}

}  // namespace dtrain::topology
