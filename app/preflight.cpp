#include "preflight.hpp"

#include <caffe2/core/common.h>
#include <fmt/format.h>

#include <string>

#include "comm/groups.hpp"
#include "comm/survey/discover.hpp"
#include "core/error.hpp"
#include "doctor/launch.hpp"
#include "doctor/libraries.hpp"
#include "doctor/memory.hpp"

namespace dtrain::app {
namespace {

/// Of the library that is loaded. at::show_config() must not be called here: it makes LibTorch look for CUDA,
/// and where the part for CUDA is not loaded yet LibTorch remembers for the life of the process that there is
/// none.
std::string loaded_libtorch() {
  const auto& settings = caffe2::GetBuildOptions();
  const auto version = settings.find("TORCH_VERSION");
  return version == settings.end() ? DTRAIN_LIBTORCH_VERSION : version->second;
}

}  // namespace

std::vector<doctor::Finding> judge_launch_of(const comm::Communicator& world,
                                             const topology::Cluster& cluster, const Environment& environment,
                                             int spares) {
  doctor::LaunchFacts facts{.world_size = cluster.world_size(),
                            .nodes = cluster.node_count(),
                            .launcher = environment.launcher,
                            .slurm_tasks = environment.slurm_tasks,
                            .slurm_nodes = environment.slurm_nodes};
  if (facts.slurm_tasks) *facts.slurm_tasks -= spares;
  if (!environment.launcher.empty()) facts.announced = environment.launcher_size - spares;
  return doctor::from_text(world.broadcast(doctor::to_text(doctor::judge_launch(facts)), 0));
}

std::vector<doctor::Finding> judge_cores_of(const comm::Communicator& world, const topology::Cluster& cluster,
                                            const Environment& environment,
                                            const doctor::ThreadRequest& request) {
  const bool bound_by_mpirun = environment.launcher == "mpirun";
  std::vector<int> launcher_cores;
  for (const auto cores : world.all_gather(std::int64_t{bound_by_mpirun ? doctor::cores_of_parent() : 0}))
    launcher_cores.push_back(static_cast<int>(cores));
  return doctor::judge_cores(cluster, request, launcher_cores);
}

std::vector<doctor::Finding> judge_libraries() {
  return {doctor::judge_library({.what = "LibTorch",
                                 .built = DTRAIN_LIBTORCH_VERSION,
                                 .loaded = loaded_libtorch(),
                                 .copies = doctor::loaded_copies("libtorch_cpu.so"),
                                 .match = doctor::Match::same_minor}),
          doctor::judge_library(doctor::mpi_facts()), doctor::judge_library(doctor::hdf5_facts())};
}

void look_before_run(const comm::Communicator& world, const Environment& environment,
                     const train::RunConfig& config, const Log& log) {
  const auto cluster = comm::discover_cluster(world, comm::affinity_mask());
  const auto launch = judge_launch_of(world, cluster, environment, config.spares).front();
  if (launch.level == doctor::Level::problem && world.size() == 1)
    throw usage_error(launch.text, "launch", launch.remedy);
  const doctor::ThreadRequest request{.threads = config.threads, .source = "--threads "};
  std::vector<doctor::Finding> mine = judge_libraries();
  mine.push_back(launch);
  for (const auto& finding : judge_cores_of(world, cluster, environment, request)) mine.push_back(finding);
  const auto& place = cluster.ranks[static_cast<std::size_t>(world.rank())];
  const topology::Mesh mesh(cluster, config.mesh_shape, config.comm.order);
  const auto need = comm::shared_memory_for(cluster, mesh, place.node);
  mine.push_back(doctor::judge_shared_memory(doctor::look_at_shared_memory(static_cast<std::int64_t>(need))));
  for (const auto& finding : doctor::judge_sharing(cluster)) mine.push_back(finding);
  std::vector<std::vector<doctor::Finding>> by_rank;
  for (const auto& text : world.all_gather(doctor::to_text(doctor::problems_in(mine))))
    by_rank.push_back(doctor::from_text(text));
  if (world.rank() != 0) return;
  for (const auto& [finding, where] : doctor::merge(by_rank, cluster, doctor::Asked::ranks)) {
    log.warn(fmt::format("{}: {}{}{}; {}", finding.what, where, where.empty() ? "" : ": ", finding.text,
                         finding.remedy));
  }
}

}  // namespace dtrain::app
