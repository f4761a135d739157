#include "doctor/launch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "core/counted.hpp"
#include "core/version.hpp"

namespace dtrain::doctor {
namespace {

constexpr const char* kLaunch = "launch";

/// What the launcher has made of what it was asked for.
std::optional<Finding> judge_announced(const LaunchFacts& facts) {
  const int announced = facts.announced.value_or(facts.world_size);
  if (announced == facts.world_size) return std::nullopt;
  const bool srun = facts.launcher == "srun";
  const char* const remedy = srun ? "use srun --mpi=pmix, or mpirun inside the allocation"
                                  : "start it with the mpirun of the MPI it is linked to: . jobs/env.sh";
  if (facts.world_size == 1) {
    return problem(kLaunch,
                   fmt::format("{} started {} tasks but MPI sees {} jobs of one rank",
                               srun ? "Slurm" : facts.launcher, announced, announced),
                   remedy);
  }
  return problem(kLaunch,
                 fmt::format("{} started {} tasks but MPI sees {}", facts.launcher, announced,
                             counted(facts.world_size, "rank")),
                 remedy);
}

/// With srun the job step is what srun was told; mpirun takes nodes and ranks from several places.
std::optional<Finding> judge_allocation(const LaunchFacts& facts) {
  const int nodes = facts.slurm_nodes.value_or(facts.nodes);
  const int tasks = facts.slurm_tasks.value_or(facts.world_size);
  if (facts.nodes > nodes) {
    return problem(
        kLaunch,
        fmt::format("the ranks are on {} but the Slurm job has {}", counted(facts.nodes, "node"), nodes),
        "leave --host and --hostfile out: mpirun takes the nodes of the allocation");
  }
  if (facts.launcher == "srun") return std::nullopt;
  if (facts.launcher.empty() && tasks > 1) {
    return note(kLaunch, fmt::format("one process, started by hand in a Slurm job of {} tasks", tasks),
                "start it with srun --mpi=pmix or mpirun to look at all of them");
  }
  if (facts.slurm_tasks && facts.world_size == tasks && facts.nodes < nodes) {
    return problem(kLaunch,
                   fmt::format("all {} ranks are on {} of the job's {} nodes", tasks, facts.nodes, nodes),
                   "unset PRTE_MCA_rmaps_default_mapping_policy OMPI_MCA_rmaps_base_oversubscribe, or use "
                   "mpirun --map-by ppr:N:node");
  }
  if (!facts.slurm_tasks && facts.nodes < nodes && facts.world_size >= nodes) {
    return note(kLaunch, fmt::format("the ranks are on {} of the job's {} nodes", facts.nodes, nodes),
                "use mpirun --map-by ppr:N:node for N ranks on each");
  }
  if (facts.world_size != tasks) {
    return note(kLaunch,
                fmt::format("{} in a Slurm job of {} tasks", counted(facts.world_size, "rank"), tasks),
                "leave -np out to use all of the allocation");
  }
  return std::nullopt;
}

}  // namespace

std::vector<Finding> judge_launch(const LaunchFacts& facts) {
  if (auto bad = judge_announced(facts)) return {*bad};
  if (auto bad = judge_allocation(facts)) return {*bad};
  return {good(kLaunch, fmt::format("{} on {}, started {}", counted(facts.world_size, "rank"),
                                    counted(facts.nodes, "node"),
                                    facts.launcher.empty() ? "by hand" : "by " + facts.launcher))};
}

std::vector<Finding> judge_slurm_job(const std::string& mine, const std::string& first_ranks) {
  if (mine == first_ranks) return {};
  const auto named = [](const std::string& job) { return job.empty() ? std::string("none") : job; };
  return {problem(kLaunch,
                  fmt::format("SLURM_JOB_ID is {} but {} on rank 0", named(mine), named(first_ranks)),
                  "unset the SLURM_ variables that another job has left in the shell or in mpirun -x")};
}

std::vector<Finding> judge_builds(const std::vector<std::string>& builds, const topology::Cluster& cluster) {
  std::vector<int> others;
  std::set<std::string> hosts;
  for (std::size_t rank = 0; rank < builds.size(); ++rank) {
    if (builds[rank] == builds.front()) continue;
    others.push_back(static_cast<int>(rank));
    hosts.insert(cluster.ranks[rank].hostname);
  }
  if (others.empty()) {
    return {good("build", fmt::format("dtrain {}, build {}{}", version(), builds.front().substr(0, 8),
                                      builds.size() == 1 ? "" : " on all ranks"))};
  }
  return {problem(
      "build",
      fmt::format("{} ({}) {} another build of dtrain than rank 0 ({})", numbered("rank", others),
                  fmt::join(hosts, ", "), others.size() == 1 ? "is" : "are", cluster.ranks.front().hostname),
      "start the same program on all nodes, from one shared folder")};
}

}  // namespace dtrain::doctor
