#include "train/job.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "comm/discover.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/version.hpp"

namespace dtrain::train {
namespace {

comm::Communicator agreed_world(const RunConfig& config, const comm::MpiEnvironment& mpi) {
  auto world = comm::Communicator::duplicate(mpi.world());
  const auto build = world.broadcast(build_id(), 0);
  const auto other = world.max(static_cast<std::int64_t>(build == build_id() ? -1 : world.rank()));
  require(
      other < 0, fmt::format("rank {} is another build of dtrain than rank 0", other),
      {.subject = "configuration", .advice = "start the same program on all nodes", .code = ExitCode::usage});
  const auto text = world.broadcast(config.text, 0);
  const auto different = world.max(static_cast<std::int64_t>(text != config.text));
  require(different == 0, "the ranks were started with different options",
          {.subject = "configuration",
           .advice = "start every rank with the same command line and file",
           .code = ExitCode::usage});
  return world;
}

int threads_for(const RunConfig& config, const topology::Cluster& cluster, int rank) {
  if (config.threads > 0) return config.threads;
  return std::max(1, static_cast<int>(cluster.cores_per_rank(rank)));
}

// LibTorch starts its pool at the first parallel operation with the number set by then; a helper thread that
// came first would change the default of later threads.
int start_thread_pool(int threads) {
  at::set_num_threads(threads);
  at::ones({1 << 16}).sum();
  return threads;
}

comm::CommConfig comm_config(const RunConfig& config, const comm::MpiEnvironment& mpi, int threads,
                             double cores_per_rank) {
  const bool spare_core = cores_per_rank >= threads + 1;
  return {.backend = comm::parse_backend(config.comm.backend),
          .all_reduce = comm::parse_algorithm(config.comm.all_reduce),
          .drive = spare_core ? comm::Drive::thread : comm::Drive::inline_,
          .timeout_s = config.comm.watchdog_s,
          .threads_per_rank = threads,
          .recovery = mpi.can_recover()};
}

}  // namespace

Job::Job(const RunConfig& config, const comm::MpiEnvironment& mpi, SpanSink& sink)
    : world_(agreed_world(config, mpi)),
      cluster_(comm::discover_cluster(world_, comm::affinity_mask())),
      threads_(start_thread_pool(threads_for(config, cluster_, world_.rank()))),
      mesh_(cluster_, config.mesh_shape),
      groups_(comm::make_groups(world_, cluster_, mesh_,
                                comm_config(config, mpi, threads_, cluster_.cores_per_rank(world_.rank())),
                                sink)),
      tensor_ranks_(groups_.tensor()),
      token_(world_.broadcast(fmt::format("{}-{}", steady_ns(), getpid()), 0)) {}

bool Job::has_spare_core() const { return cluster_.cores_per_rank(world_.rank()) >= threads_ + 1; }

data::NodeTeam Job::team() {
  auto& node = groups_.node();
  return {.local_rank = node.rank(), .local_size = node.size(), .token = token_, .barrier = [&node] {
            node.barrier().wait();
          }};
}

}  // namespace dtrain::train
