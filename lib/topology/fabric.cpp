#include "topology/fabric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "core/error.hpp"

namespace dtrain::topology {
namespace {

constexpr double kBytesPerGigabit = 1e9 / 8;
// A step or a message beyond would look like a run that hangs.
constexpr double kSlowest = 10'000;  // times as long
constexpr double kLatest_s = 60;     // of a message on its way
constexpr double kNarrowest = 1e-6;  // Gb/s

}  // namespace

int Fabric::node_of(int rank) const {
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (std::ranges::find(nodes[node], rank) != nodes[node].end()) return static_cast<int>(node);
  }
  return -1;
}

double Fabric::slowness(int rank, std::int64_t step) const {
  double factor = 1;
  for (const auto& entry : slow) {
    if (entry.rank == rank && step >= entry.first_step && step <= entry.last_step) factor *= entry.factor;
  }
  return factor;
}

Fabric::Link Fabric::link(int rank, int other) const {
  const int a = node_of(rank);
  const int b = node_of(other);
  if (a == b) return {};
  Link found;
  for (const auto& entry : links) {
    const bool of_these = (entry.a == a && entry.b == b) || (entry.a == b && entry.b == a);
    if (!entry.of_all && of_these) return entry.link;
    if (entry.of_all) found = entry.link;
  }
  return found;
}

Fabric::Link Fabric::slowest_link(const std::vector<int>& ranks) const {
  Link slowest;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto between = link(ranks[i], ranks[j]);
      slowest.latency_s = std::max(slowest.latency_s, between.latency_s);
      slowest.bytes_per_s = std::min(slowest.bytes_per_s, between.bytes_per_s);
    }
  }
  return slowest;
}

int Fabric::nodes_of(const std::vector<int>& ranks) const {
  std::set<int> found;
  for (const int rank : ranks) found.insert(node_of(rank));
  return static_cast<int>(found.size());
}

std::string Fabric::in_words() const {
  std::string words;
  const auto add = [&words](const std::string& part) {
    if (!words.empty()) words += "; ";
    words += part;
  };
  for (const auto& entry : slow) {
    std::string when;
    if (entry.first_step > 1) when += fmt::format(" from step {}", entry.first_step);
    if (entry.last_step != std::numeric_limits<std::int64_t>::max())
      when += fmt::format(" to step {}", entry.last_step);
    add(fmt::format("rank {} computes {:g} times as long{}", entry.rank, entry.factor, when));
  }
  if (!nodes.empty()) add(fmt::format("{} invented nodes", nodes.size()));
  for (const auto& entry : links) {
    const auto which = entry.of_all ? std::string("between nodes")
                                    : fmt::format("between nodes {} and {}", entry.a, entry.b);
    add(fmt::format("{:g} ms and {:g} Gb/s {}", entry.link.latency_s * 1e3,
                    entry.link.bytes_per_s / kBytesPerGigabit, which));
  }
  add(clock == Clock::computed
          ? fmt::format("times are computed, {:g} us a sample", compute_s_per_sample * 1e6)
          : "as delays");
  return words;
}

void Fabric::validate(int world_size) const {
  if (!exists()) return;
  const auto refuse_unless = [this](bool good, const std::string& where, const std::string& problem,
                                    std::string_view advice) {
    if (!good) throw usage_error(problem, where.empty() ? file : file + ", " + where, advice);
  };
  const auto is_rank = [world_size](int rank) { return rank >= 0 && rank < world_size; };
  const auto ranks_there = fmt::format("use 0 to {}", world_size - 1);
  refuse_unless(clock == Clock::real || (std::isfinite(compute_s_per_sample) && compute_s_per_sample > 0), "",
                "a computed clock needs the time of a sample", "add compute_us_per_sample = 20, for example");
  refuse_unless(std::isfinite(encode_s_per_byte) && encode_s_per_byte >= 0, "",
                "the time of encoding is no time of at least 0", "use encode_us_per_mb = 500, for example");
  for (const auto& entry : slow) {
    refuse_unless(is_rank(entry.rank), entry.where, fmt::format("slow: there is no rank {}", entry.rank),
                  ranks_there);
    refuse_unless(std::isfinite(entry.factor) && entry.factor >= 1, entry.where,
                  fmt::format("slow: a factor of {:g} would not be slower", entry.factor),
                  "use 1 or more, such as 4.0");
    refuse_unless(entry.factor <= kSlowest, entry.where,
                  fmt::format("slow: a factor of {:g} would stand still", entry.factor),
                  fmt::format("use {:g} at most", kSlowest));
    refuse_unless(entry.first_step >= 1 && entry.last_step >= entry.first_step, entry.where,
                  fmt::format("slow: there are no steps {} to {}", entry.first_step, entry.last_step),
                  "steps count from 1; to_step is the last one");
  }
  std::set<int> placed;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    refuse_unless(!nodes[node].empty(), where_nodes[node], fmt::format("node {} has no rank", node),
                  "list some, as in ranks = [0, 1]");
    for (const int rank : nodes[node]) {
      refuse_unless(is_rank(rank), where_nodes[node], fmt::format("node: there is no rank {}", rank),
                    ranks_there);
      refuse_unless(placed.insert(rank).second, where_nodes[node],
                    fmt::format("node: rank {} is on two nodes", rank), "list each rank once");
    }
  }
  refuse_unless(nodes.empty() || std::ssize(placed) == world_size, "",
                fmt::format("{} of {} ranks are on no node", world_size - std::ssize(placed), world_size),
                "list each rank in one [[node]]");
  const int last = static_cast<int>(nodes.size()) - 1;
  for (const auto& entry : links) {
    refuse_unless(last >= 1, entry.where, "link: there are not two nodes to link",
                  "add a [[node]] for each, or leave the link out");
    for (const int node : {entry.a, entry.b}) {
      refuse_unless(entry.of_all || (node >= 0 && node <= last), entry.where,
                    fmt::format("link: there is no node {}", node),
                    fmt::format("nodes count from 0 to {}", last));
    }
    refuse_unless(entry.of_all || entry.a != entry.b, entry.where, "link: joins a node with itself",
                  "name two nodes");
    refuse_unless(std::isfinite(entry.link.latency_s) && entry.link.latency_s >= 0, entry.where,
                  fmt::format("link: a latency of {:g} ms would be a message from the future",
                              entry.link.latency_s * 1e3),
                  "use 0 or more");
    refuse_unless(entry.link.latency_s <= kLatest_s, entry.where,
                  fmt::format("link: a message would take {:g} s", entry.link.latency_s),
                  fmt::format("use a latency_ms of {:g} at most", kLatest_s * 1e3));
    refuse_unless(entry.link.bytes_per_s >= kNarrowest * kBytesPerGigabit, entry.where,
                  fmt::format("link: {:g} Gb/s carry nothing", entry.link.bytes_per_s / kBytesPerGigabit),
                  fmt::format("use {:g} or more, or leave gbit_per_s out", kNarrowest));
  }
}

Cluster on_fabric(Cluster cluster, const Fabric& fabric) {
  if (fabric.nodes.empty()) return cluster;
  std::map<int, int> real_of;    // by invented node
  std::map<int, int> number_of;  // after a loss some nodes may be gone
  std::map<int, int> ranks_on;
  for (auto& place : cluster.ranks) {
    for (int node = 0; node < static_cast<int>(fabric.nodes.size()); ++node) {
      const auto& ranks = fabric.nodes[static_cast<std::size_t>(node)];
      if (std::ranges::find(ranks, place.first_rank) == ranks.end()) continue;
      const auto real = real_of.emplace(node, place.node).first->second;
      if (real != place.node) {
        throw usage_error(fmt::format("ranks of its node {} run on different machines", node), fabric.file,
                          "put only ranks that share memory on one node");
      }
      if (place.machine < 0) place.machine = place.node;
      place.node = number_of.emplace(node, static_cast<int>(number_of.size())).first->second;
      place.local_rank = ranks_on[place.node]++;
      break;
    }
  }
  // The ranks' machine is named by a node on it.
  std::map<int, int> machine;
  for (auto& place : cluster.ranks) place.machine = machine.emplace(place.machine, place.node).first->second;
  cluster.validate();
  return cluster;
}

}  // namespace dtrain::topology
