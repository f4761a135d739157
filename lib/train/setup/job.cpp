#include "train/setup/job.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "comm/survey/discover.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/version.hpp"
#include "parallel/strategy/registry.hpp"
#include "train/config/strategy_setting.hpp"

namespace dtrain::train {
namespace {

comm::Communicator agreed_world(const RunConfig& config, const comm::MpiEnvironment& mpi) {
  auto world = comm::Communicator::duplicate(mpi.world(), config.comm.timeout_s);
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

/// Where a device computes, a core is left to the loader and one to the thread that drives the queue.
int threads_for(const RunConfig& config, const topology::Cluster& cluster, int rank) {
  if (config.threads > 0) return config.threads;
  const int others = config.computes_on_device() ? 2 : 0;
  return std::max(1, static_cast<int>(cluster.cores_per_rank(rank)) - others);
}

parallel::RankDevice opened_device(const RunConfig& config, const comm::Communicator& world) {
  auto device = parallel::open_device(config.device, world);
  if (config.reproducible && config.computes_on_device()) parallel::compute_deterministically();
  if (config.tf32) parallel::use_tf32(true);
  return device;
}

// LibTorch starts its pool at the first parallel operation with the number set by then; a helper thread that
// came first would change the default of later threads.
int start_thread_pool(int threads) {
  at::set_num_threads(threads);
  at::ones({1 << 16}).sum();
  return threads;
}

comm::CommConfig comm_config(const RunConfig& config, const comm::MpiEnvironment& mpi,
                             const parallel::RankDevice& device, int threads, double cores_per_rank) {
  // On a device no other thread looks at operations in flight while the compute thread waits for the device.
  // And no other thread but a driver may move messages on that several threads await.
  const bool has_driver =
      cores_per_rank >= threads + 1 || device.transport != nullptr || serves_in_threads(config);
  comm::CommConfig all = config.comm;
  all.drive = has_driver ? comm::Drive::thread : comm::Drive::inline_;
  all.threads_per_rank = threads;
  all.transport = device.transport;
  all.device = device.index;
  all.stream = device.stream;
  all.recovery = mpi.can_recover();
  all.splits_data = config.strategy_options.shard_within == "node";
  all.gathers_apart = parallel::find_strategy(config.strategy).shares.parameters && !all.splits_data;
  all.compares_all = config.verify_every > 0;
  all.fabric = config.fabric.delays_messages() ? &config.fabric : nullptr;
  return all;
}

/// The texts of all ranks of `group`, by rank. Collective.
std::vector<std::string> exchange_texts(comm::Group& group, const std::string& mine) {
  std::array<std::int64_t, 1> length = {std::ssize(mine)};
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(group.size()));
  group.all_gather(comm::Buffer::of(std::span<std::int64_t>(length)), comm::Buffer::of(std::span(lengths)))
      .wait();
  const auto longest = static_cast<std::size_t>(std::ranges::max(lengths));
  std::vector<std::string> texts(lengths.size());
  if (longest == 0) return texts;
  std::vector<std::int32_t> letters(longest);
  std::ranges::copy(mine, letters.begin());
  std::vector<std::int32_t> all(longest * lengths.size());
  group.all_gather(comm::Buffer::of(std::span(letters)), comm::Buffer::of(std::span(all))).wait();
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(lengths[rank]); ++i)
      texts[rank] += static_cast<char>(all[rank * longest + i]);
  }
  return texts;
}

/// What decides which all_reduce is fastest: `node: 4 nodes, 8 ranks, data groups of 4`. Empty where there is
/// no choice.
std::string layout_name(const RunConfig& config, const topology::Cluster& cluster,
                        const topology::Mesh& mesh) {
  if (config.fabric.exists()) return {};  // what is fastest there is fastest nowhere else
  if (config.comm.all_reduce != comm::Algorithm::automatic ||
      !mesh.crosses_nodes(cluster, topology::Axis::data))
    return {};
  std::string host = cluster.ranks[0].hostname;
  host.resize(std::min(host.size(), host.find_first_of("0123456789.")));
  return fmt::format("{}, {} nodes, {} ranks, data groups of {}", host, cluster.node_count(),
                     cluster.world_size(), mesh.shape().data);
}

/// Empty where nothing is measured.
comm::AlgorithmTable table_for(const std::string& layout, const checkpoint::AllReduceTable& earlier,
                               bool measures, const std::string& cache, comm::Groups& groups,
                               const comm::Communicator& world) {
  if (layout.empty()) return {};
  if (layout == earlier.layout)
    return comm::AlgorithmTable::parse(earlier.by_size).value_or(comm::AlgorithmTable());
  return measures ? comm::cached_table(groups, world, cache, layout) : comm::AlgorithmTable();
}

}  // namespace

Job::Job(const RunConfig& config, const comm::MpiEnvironment& mpi, SpanSink& sink, bool measures,
         const checkpoint::AllReduceTable& earlier)
    : world_(agreed_world(config, mpi)),
      preparation_(world_, config.files_limit_s()),
      device_(opened_device(config, world_)),
      cluster_(topology::on_fabric(
          comm::discover_cluster(world_, comm::affinity_mask(), device_.place, config.switches),
          config.fabric)),
      threads_(start_thread_pool(threads_for(config, cluster_, world_.rank()))),
      mesh_(cluster_, config.mesh_shape, config.comm.order),
      virtual_clock_(config.fabric.computes_times()
                         ? std::make_unique<comm::VirtualClock>(config.fabric, first_rank())
                         : nullptr),
      device_clock_(device().is_cpu()
                        ? nullptr
                        : std::make_unique<parallel::DeviceClock>(device(), sink, device_.ranges)),
      groups_(comm::make_groups(
          world_, cluster_, mesh_,
          comm_config(config, mpi, device_, threads_, cluster_.cores_per_rank(world_.rank())),
          device_clock_ != nullptr ? static_cast<SpanSink&>(*device_clock_) : sink)),
      layout_(layout_name(config, cluster_, mesh_)),
      all_reduce_table_(table_for(layout_, earlier, measures, config.table_file, groups_, world_)),
      tensor_ranks_(groups_.tensor()),
      token_(world_.broadcast(fmt::format("{}-{}", steady_ns(), getpid()), 0)) {
  groups_.use(all_reduce_table_);
}

void Job::end_preparation() {
  world_.barrier();
  preparation_.end();
}

bool Job::has_spare_core() const { return cluster_.cores_per_rank(world_.rank()) >= threads_ + 1; }

data::NodeTeam Job::team() {
  auto& node = groups_.node();
  return {.local_rank = node.rank(),
          .local_size = node.size(),
          .node = cluster_.ranks[static_cast<std::size_t>(rank())].node,
          .nodes = cluster_.node_count(),
          .token = token_,
          .exchange = [&node](const std::string& mine) { return exchange_texts(node, mine); }};
}

}  // namespace dtrain::train
