#include "comm/survey/discover.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <sstream>

#include "comm/shared_memory/shared_memory.hpp"
#include "comm/survey/hardware.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

std::string hostname() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string("unknown");
}

/// A place travels as one line of text; of nodes and machines it names the lowest world rank there.
std::string encode(const topology::RankPlace& place) {
  const auto word = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", place.machine, place.node, place.local_rank,
                     place.numa_node, place.gpu, place.island, word(place.device_uuid),
                     word(place.device_bus), word(place.switches), place.hostname,
                     fmt::join(place.cpus, " "));
}

topology::RankPlace decode(const std::string& line) {
  topology::RankPlace place;
  std::istringstream stream(line);
  stream >> place.machine >> place.node >> place.local_rank;
  stream >> place.numa_node >> place.gpu >> place.island >> place.device_uuid >> place.device_bus >>
      place.switches >> place.hostname;
  for (std::string* const word : {&place.device_uuid, &place.device_bus, &place.switches}) {
    if (*word == "-") word->clear();
  }
  for (int cpu = 0; stream >> cpu;) place.cpus.push_back(cpu);
  return place;
}

/// Sets machine, node and local_rank; the first two as the lowest world rank there. Hostnames would put two
/// containers of one name together, and MPI does so with a launcher's processes in containers of their own,
/// which see another /dev/shm each. Collective over `world`.
void find_node(const Communicator& world, topology::RankPlace& mine) {
  const Communicator machine = world.split_by_shared_memory();
  const std::vector<std::int64_t> ranks = machine.all_gather(std::int64_t{world.rank()});
  const std::vector<std::int64_t> memories = machine.all_gather(SharedMemory::identity());
  const auto self = memories.begin() + machine.rank();
  mine.machine = static_cast<int>(ranks.front());
  mine.node = static_cast<int>(
      ranks[static_cast<std::size_t>(std::find(memories.begin(), self, *self) - memories.begin())]);
  mine.local_rank = static_cast<int>(std::count(memories.begin(), self, *self));
}

/// The ranks of `world` as they were numbered at the start of the job.
std::vector<int> first_ranks(const Communicator& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<int> first = ranks;
  MPI_Group now = MPI_GROUP_NULL;
  MPI_Group start = MPI_GROUP_NULL;
  MPI_Comm_group(world.handle(), &now);
  MPI_Comm_group(MPI_COMM_WORLD, &start);
  MPI_Group_translate_ranks(now, world.size(), ranks.data(), start, first.data());
  MPI_Group_free(&now);
  MPI_Group_free(&start);
  return first;
}

}  // namespace

topology::Cluster discover_cluster(const Communicator& world, const std::vector<int>& cpus,
                                   const LocalDevice& device, const std::string& switches) {
  topology::RankPlace mine;
  mine.hostname = hostname();
  mine.cpus = cpus;
  mine.numa_node = read_hardware(false).numa_node_of(cpus);
  mine.gpu = device.gpu;
  mine.device_uuid = device.uuid;
  mine.device_bus = device.bus;
  mine.island = device.island;
  mine.switches = switches;
  find_node(world, mine);
  const std::vector<std::string> lines = world.all_gather(encode(mine));
  const std::vector<int> first = first_ranks(world);
  topology::Cluster cluster;
  std::map<int, int> node_of;  // by its lowest rank, which comes before the others
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    topology::RankPlace place = decode(lines[rank]);
    place.rank = static_cast<int>(rank);
    place.first_rank = first[rank];
    place.node = node_of.emplace(place.node, static_cast<int>(node_of.size())).first->second;
    place.machine = node_of.at(place.machine);
    cluster.ranks.push_back(std::move(place));
  }
  cluster.validate();
  return cluster;
}

void check_launch(int world_size, std::optional<int> announced_tasks) {
  if (world_size > 1 || announced_tasks.value_or(1) <= 1) return;
  throw usage_error(fmt::format("Slurm started {} tasks but MPI sees {} jobs of one rank", *announced_tasks,
                                *announced_tasks),
                    "launch", "use srun --mpi=pmix, or mpirun inside the allocation");
}

}  // namespace dtrain::comm
