#include "doctor/cores.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/counted.hpp"

namespace dtrain::doctor {
namespace {

constexpr const char* kCores = "cores";

/// Ranks whose mask has fewer cores than the threads that are asked for.
std::vector<Finding> judge_masks(const topology::Cluster& cluster, const ThreadRequest& request) {
  std::map<std::size_t, std::vector<int>> short_of;  // cores -> ranks
  for (const auto& place : cluster.ranks) {
    if (static_cast<int>(place.cpus.size()) < request.threads)
      short_of[place.cpus.size()].push_back(place.rank);
  }
  std::vector<Finding> findings;
  for (const auto& [cores, ranks] : short_of) {
    findings.push_back(
        problem(kCores,
                fmt::format("{}{} but {} may use {}", request.source, request.threads,
                            static_cast<int>(ranks.size()) == cluster.world_size() ? "each rank"
                                                                                   : numbered("rank", ranks),
                            counted(cores, "core")),
                fmt::format("give each rank {0} cores by mpirun --map-by slot:PE={0} or srun "
                            "--cpus-per-task={0}, or say {1}{2}",
                            request.threads, request.source, std::max<std::size_t>(cores, 1))));
  }
  return findings;
}

/// Ranks that a launcher has put on top of each other.
std::vector<Finding> judge_bindings(const topology::Cluster& cluster) {
  std::map<std::pair<int, int>, std::vector<int>> bound;  // node, core -> ranks
  for (const auto& place : cluster.ranks) {
    if (place.cpus.size() == 1) bound[{place.node, place.cpus.front()}].push_back(place.rank);
  }
  std::vector<Finding> findings;
  for (const auto& [where, ranks] : bound) {
    if (ranks.size() < 2) continue;
    const auto& host = cluster.ranks[static_cast<std::size_t>(ranks.front())].hostname;
    findings.push_back(problem(
        kCores, fmt::format("{} are all bound to core {} of {}", numbered("rank", ranks), where.second, host),
        "use mpirun --bind-to none, or srun --cpu-bind=cores with a core for each rank"));
  }
  return findings;
}

std::size_t cores_of_node(const topology::Cluster& cluster, int node) {
  std::set<int> cores;
  for (const auto& place : cluster.ranks) {
    if (place.node == node) cores.insert(place.cpus.begin(), place.cpus.end());
  }
  return cores.size();
}

/// What the ranks of one node have together. `allowed`: cores that their launcher may use, or 0.
std::vector<Finding> judge_node(std::size_t ranks, std::size_t cores, std::size_t allowed,
                                const ThreadRequest& request) {
  const auto wanted = ranks * static_cast<std::size_t>(std::max(request.threads, 1));
  if (wanted > cores && request.threads > 1) {
    return {problem(kCores,
                    fmt::format("{} of {} threads share {}", counted(ranks, "rank"), request.threads,
                                counted(cores, "core")),
                    fmt::format("start fewer ranks on a node, or say {}{}", request.source,
                                std::max<std::size_t>(cores / ranks, 1)))};
  }
  if (wanted > cores) {
    return {note(kCores, fmt::format("{} share {}", counted(ranks, "rank"), counted(cores, "core")),
                 "start at most one rank per core where speed matters")};
  }
  if (cores == ranks && allowed > cores) {  // one each, as mpirun binds one or two ranks unasked
    return {note(kCores,
                 fmt::format("each rank is bound to one core: {} of {} idle", allowed - cores, allowed),
                 fmt::format("use mpirun --bind-to none, or --map-by slot:PE={}", allowed / ranks))};
  }
  if (request.threads > 1 && wanted + ranks > cores) {
    return {
        note(kCores,
             fmt::format("{}{} leaves no core to the loader: it works between steps", request.source,
                         request.threads),
             fmt::format("say {}{}, or give each rank a core more", request.source, request.threads - 1))};
  }
  return {};
}

std::vector<Finding> judge_nodes(const topology::Cluster& cluster, const ThreadRequest& request,
                                 const std::vector<int>& launcher_cores) {
  std::vector<std::vector<Finding>> by_rank(cluster.ranks.size());
  for (const int leader : cluster.leaders()) {
    const auto index = static_cast<std::size_t>(leader);
    const int node = cluster.ranks[index].node;
    by_rank[index] =
        judge_node(static_cast<std::size_t>(cluster.local_size(node)), cores_of_node(cluster, node),
                   static_cast<std::size_t>(launcher_cores[index]), request);
  }
  std::vector<Finding> findings;
  for (auto& [finding, where] : merge(by_rank, cluster, Asked::nodes)) {
    findings.push_back(finding);
    if (!where.empty()) findings.back().text = fmt::format("{}: {}", where, finding.text);
  }
  return findings;
}

}  // namespace

std::vector<Finding> judge_cores(const topology::Cluster& cluster, const ThreadRequest& request,
                                 const std::vector<int>& launcher_cores) {
  std::vector<Finding> findings = judge_masks(cluster, request);
  for (const Finding& finding : judge_bindings(cluster)) findings.push_back(finding);
  if (findings.empty()) findings = judge_nodes(cluster, request, launcher_cores);
  if (!findings.empty()) return findings;
  int least = static_cast<int>(cluster.cores_per_rank(0));
  int most = least;
  for (const auto& place : cluster.ranks) {
    least = std::min(least, static_cast<int>(cluster.cores_per_rank(place.rank)));
    most = std::max(most, static_cast<int>(cluster.cores_per_rank(place.rank)));
  }
  const auto range = most == least ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
  const auto threads = request.threads > 0 ? fmt::format("{}", request.threads) : range;
  return {good(kCores, fmt::format("{} for each rank, compute threads: {}", range, threads))};
}

int cores_of_parent() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(::getppid(), sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace dtrain::doctor
