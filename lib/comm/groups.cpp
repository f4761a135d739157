#include "comm/groups.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/emulation/link_delays.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "comm/shared_memory/segment.hpp"
#include "comm/shared_memory/shared_memory.hpp"
#include "comm/traffic.hpp"
#include "comm/watch/flight_recorder.hpp"
#include "comm/watch/health.hpp"
#include "comm/watch/inquiry.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

constexpr double kLongestSpinS = 50e-6;

std::vector<int> ranks_where(int world_size, const std::function<bool(int)>& condition) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    if (condition(rank)) ranks.push_back(rank);
  }
  return ranks;
}

int index_of(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

/// Spinning helps only if no other compute thread of the node needs the core meanwhile, and not where devices
/// do the work: they take their time, and each look costs calls of their library.
QueueConfig queue_config(const topology::Cluster& cluster, const Communicator& job,
                         const CommConfig& config) {
  const int threads = config.threads_per_rank + (config.drive == Drive::thread ? 1 : 0);
  const bool cores_suffice = cluster.cores_per_rank(job.rank()) >= threads;
  return {.drive = config.drive,
          .timeout_s = config.timeout_s,
          .allowance = job.allowance(),
          .spin_s = cores_suffice && config.transport == nullptr ? kLongestSpinS : 0};
}

std::vector<int> first_ranks(const topology::Cluster& cluster) {
  std::vector<int> ranks;
  for (const auto& place : cluster.ranks) ranks.push_back(place.first_rank);
  return ranks;
}

/// One more than the largest rank that is still there.
int ranks_at_the_start(const topology::Cluster& cluster) {
  return std::ranges::max(first_ranks(cluster)) + 1;
}

std::unique_ptr<Inquiry> inquiry_of(const Communicator& job, const topology::Cluster& cluster,
                                    const FlightRecorder& recorder) {
  std::vector<int> nodes;
  for (const auto& place : cluster.ranks) nodes.push_back(place.node);
  const bool one_node = std::ranges::all_of(nodes, [&](int node) { return node == nodes.front(); });
  if (one_node) return nullptr;
  return std::make_unique<Inquiry>(job, first_ranks(cluster), std::move(nodes), recorder);
}

std::unique_ptr<LinkDelays> delays_of(const CommConfig& config, int rank) {
  const bool has = config.fabric != nullptr && config.fabric->delays_messages();
  return has ? std::make_unique<LinkDelays>(*config.fabric, rank) : nullptr;
}

struct Membership {
  std::string name;
  std::vector<int> ranks;
};

/// The groups that `rank` is in, in the order in which all ranks make them; `leaders` comes after them.
std::vector<Membership> groups_of(const topology::Cluster& cluster, const topology::Mesh& mesh, int rank) {
  const auto node_of = [&cluster](int of) { return cluster.ranks[static_cast<std::size_t>(of)].node; };
  const int size = cluster.world_size();
  return {{"world", ranks_where(size, [](int) { return true; })},
          {"data", mesh.group(rank, topology::Axis::data)},
          {"pipe", mesh.group(rank, topology::Axis::pipe)},
          {"tensor", mesh.group(rank, topology::Axis::tensor)},
          {"node", ranks_where(size, [&](int other) { return node_of(other) == node_of(rank); })}};
}

/// Those of `ranks` that are on the node of `rank`.
std::vector<int> on_node_of(const topology::Cluster& cluster, const std::vector<int>& ranks, int rank) {
  const auto node_of = [&](int of) { return cluster.ranks[static_cast<std::size_t>(of)].node; };
  std::vector<int> here;
  for (const int other : ranks) {
    if (node_of(other) == node_of(rank)) here.push_back(other);
  }
  return here;
}

/// Whether buffers in devices' memory go from one to the other.
bool goes_between_devices(const topology::Cluster& cluster, const CommConfig& config) {
  const auto* const transport = config.transport;
  if (config.backend == Backend::nccl) {
    constexpr const char* kOption = "--comm-backend nccl";
    if (transport == nullptr) {
      throw usage_error("NCCL carries GPU memory but this run computes on CPUs", kOption,
                        "add --device cuda, or use --comm-backend mpi");
    }
    if (cluster.shares_gpus() && !transport->lets_ranks_share_devices()) {
      throw usage_error(
          fmt::format("several ranks share a GPU, and {} does not let them", transport->description()),
          kOption, "start a rank per GPU, use NCCL 2.30 or newer, or use --comm-backend mpi");
    }
  }
  return transport != nullptr && config.backend != Backend::mpi &&
         (!cluster.shares_gpus() || transport->lets_ranks_share_devices());
}

}  // namespace

struct Groups::State {
  State(const Communicator& job, const topology::Cluster& cluster, const CommConfig& config, SpanSink& sink)
      : world_comm(job.split(0, job.rank())),
        node_comm(job.split(cluster.ranks.at(static_cast<std::size_t>(job.rank())).node, job.rank())),
        health(world_comm, node_comm, first_ranks(cluster), config.recovery),
        recorder(node_comm, cluster.ranks[static_cast<std::size_t>(job.rank())].first_rank, sink),
        inquiry(inquiry_of(job, cluster, recorder)),
        delays(delays_of(config, cluster.ranks[static_cast<std::size_t>(job.rank())].first_rank)),
        traffic(cluster.ranks[static_cast<std::size_t>(job.rank())].first_rank, ranks_at_the_start(cluster)),
        device_order(std::make_shared<DeviceOrder>(config.timeout_s)),
        queue(queue_config(cluster, job, config), recorder, health, &recorder, inquiry.get()) {}

  Communicator world_comm;
  Communicator node_comm;
  Health health;
  FlightRecorder recorder;
  std::unique_ptr<Inquiry> inquiry;    ///< Where there are other nodes.
  std::unique_ptr<LinkDelays> delays;  ///< Where links are emulated.
  Traffic traffic;
  std::shared_ptr<DeviceOrder> device_order;
  std::shared_ptr<DeviceRoot> device_root;  ///< Null: groups on devices have nothing in common.
  std::unique_ptr<Group> world;
  std::unique_ptr<Group> data;
  std::unique_ptr<Group> data_in_node;  ///< Null where data groups are not split.
  std::unique_ptr<Group> data_across;   ///< Likewise.
  std::unique_ptr<Group> data_gathers;  ///< Null where gathers have no lane of their own.
  std::unique_ptr<Group> pipe;
  std::unique_ptr<Group> tensor;
  std::unique_ptr<Group> node;
  std::unique_ptr<Group> leaders;  ///< Empty where this rank leads no node.
  std::string backend_name = "mpi";
  AlgorithmTable table;
  Queue queue;  ///< Last: its operations use the groups.
};

Groups::Groups(std::unique_ptr<State> state) : state_(std::move(state)) {}
Groups::~Groups() = default;
Groups::Groups(Groups&&) noexcept = default;
Groups& Groups::operator=(Groups&&) noexcept = default;

Group& Groups::world() { return *state_->world; }
Group& Groups::data() { return *state_->data; }
Group* Groups::data_in_node() { return state_->data_in_node.get(); }
Group* Groups::data_across() { return state_->data_across.get(); }
Group* Groups::data_gathers() { return state_->data_gathers.get(); }
Group& Groups::pipe() { return *state_->pipe; }
Group& Groups::tensor() { return *state_->tensor; }
Group& Groups::node() { return *state_->node; }
bool Groups::is_leader() const { return state_->leaders != nullptr; }

void Groups::use(const AlgorithmTable& table) {
  state_->table = table;
  for (Group* group : {state_->world.get(), state_->data.get(), state_->data_in_node.get(),
                       state_->data_across.get(), state_->data_gathers.get(), state_->pipe.get(),
                       state_->tensor.get(), state_->node.get(), state_->leaders.get()}) {
    if (group != nullptr) static_cast<MpiGroup*>(group)->compare(MpiGroup::Compare::next);
  }
}

Queue& Groups::queue() { return state_->queue; }
FlightRecorder& Groups::recorder() { return state_->recorder; }
Traffic& Groups::traffic() { return state_->traffic; }
void Groups::check_deaths() { state_->health.check_deaths(); }
const std::string& Groups::backend_name() const { return state_->backend_name; }

Group& Groups::leaders() {
  require(is_leader(), "this rank is not the first of its node",
          {.subject = "group leaders", .advice = "ask is_leader() first"});
  return *state_->leaders;
}

std::size_t shared_memory_for(const topology::Cluster& cluster, const topology::Mesh& mesh, int node) {
  const int ranks = cluster.local_size(node);
  if (ranks < 2) return 0;
  std::size_t bytes = SharedMemory::reserved_for(ranks, Health::bytes_per_rank()) +
                      SharedMemory::reserved_for(ranks, FlightRecorder::bytes_per_rank());
  std::set<std::pair<std::string, std::vector<int>>> counted;
  for (const auto& place : cluster.ranks) {
    if (place.node != node) continue;
    for (auto& [name, members] : groups_of(cluster, mesh, place.rank)) {
      const auto here = static_cast<int>(std::ranges::count_if(
          members, [&](int rank) { return cluster.ranks[static_cast<std::size_t>(rank)].node == node; }));
      if (here < 2 || !counted.emplace(name, std::move(members)).second) continue;
      bytes += SharedMemory::reserved_for(here, Segment::bytes_per_rank(here));
    }
  }
  return bytes;
}

Groups make_groups(const Communicator& world, const topology::Cluster& cluster, const topology::Mesh& mesh,
                   const CommConfig& config, SpanSink& sink) {
  config.validate();
  require(cluster.world_size() == world.size(), "the cluster has another number of ranks than the job",
          {.subject = "make_groups", .advice = "discover the cluster with this communicator"});
  const auto place = [&cluster](int rank) { return cluster.ranks[static_cast<std::size_t>(rank)]; };
  const int me = world.rank();
  bool between_devices = goes_between_devices(cluster, config);
  // Each node says for itself whether its ranks may share a GPU.
  if (cluster.shares_gpus()) between_devices = world.min(between_devices ? 1 : 0) == 1;
  auto state = std::make_unique<Groups::State>(world, cluster, config, sink);
  if (between_devices) state->backend_name = config.transport->description();
  if (!between_devices && config.transport != nullptr) state->backend_name = "mpi, through the CPU's memory";

  const auto named = [&](std::vector<int> ranks) {
    for (int& rank : ranks) rank = place(rank).first_rank;
    return ranks;
  };
  // One order on every rank; the lowest member gives a group its color.
  const auto make = [&](const std::string& name, const std::vector<int>& ranks) -> std::unique_ptr<Group> {
    Communicator comm = world.split(ranks.front(), index_of(ranks, me));
    std::vector<int> nodes;
    for (const int rank : ranks) nodes.push_back(place(rank).node);
    std::unique_ptr<Group> on_device;
    if (between_devices && ranks.size() > 1 && (name == "data" || name == "pipe" || name == "tensor")) {
      CommonSetUp common{.job = world, .color = ranks.front(), .root = state->device_root};
      on_device = config.transport->make_group({.name = name,
                                                .ranks = &comm,
                                                .world_ranks = named(ranks),
                                                .queue = &state->queue,
                                                .device = config.device,
                                                .stream = config.stream,
                                                .messages = name == "pipe",
                                                .shares_devices = cluster.shares_gpus(),
                                                .timeout_s = config.timeout_s,
                                                .common = config.common_set_up ? &common : nullptr,
                                                .order = state->device_order,
                                                .traffic = &state->traffic,
                                                .bytes_with_all = &state->traffic.among(named(ranks))});
    }
    auto group =
        std::make_unique<MpiGroup>(name, std::move(comm), named(ranks), nodes, config.order,
                                   AllReduceChoice{config.all_reduce, &state->table}, state->queue,
                                   MessageWay{config.piece_bytes, state->delays.get(), &state->traffic});
    group->set_on_device(std::move(on_device));
    if (config.compares_all) group->compare(MpiGroup::Compare::all);
    return group;
  };
  const std::array places = {&state->world, &state->data, &state->pipe, &state->tensor, &state->node};
  const auto mine = groups_of(cluster, mesh, me);
  for (std::size_t i = 0; i < places.size(); ++i) *places[i] = make(mine[i].name, mine[i].ranks);
  if (config.splits_data && mesh.crosses_nodes(cluster, topology::Axis::data) &&
      mesh.ranks_on_a_node(cluster, topology::Axis::data) > 1) {
    const auto members = mesh.group(me, topology::Axis::data);
    const auto in_node = on_node_of(cluster, members, me);
    std::vector<int> across;
    for (const int rank : members) {
      if (index_of(on_node_of(cluster, members, rank), rank) == index_of(in_node, me)) across.push_back(rank);
    }
    state->data_in_node = make("data_node", in_node);
    state->data_across = make("data_across", across);
  }
  if (config.gathers_apart && mesh.shape().data > 1)
    state->data_gathers = make("data_gathers", mesh.group(me, topology::Axis::data));
  const auto leaders = cluster.leaders();
  if (place(me).local_rank == 0) {
    state->leaders = make("leaders", leaders);
  } else {
    world.split(me, 0);  // of which all ranks take part, though only the leaders make a group
  }
  return Groups(std::move(state));
}

}  // namespace dtrain::comm
