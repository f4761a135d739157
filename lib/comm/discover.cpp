#include "comm/discover.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <sstream>

#include "comm/hardware.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

std::string hostname() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string("unknown");
}

/// The other fields travel as one line of text: `numa gpu island uuid switches hostname cpu cpu ...`.
std::string encode(const topology::RankPlace& place) {
  const auto word = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
  return fmt::format("{} {} {} {} {} {} {}", place.numa_node, place.gpu, place.island,
                     word(place.device_uuid), word(place.switches), place.hostname,
                     fmt::join(place.cpus, " "));
}

topology::RankPlace decode(const std::string& line) {
  topology::RankPlace place;
  std::istringstream stream(line);
  stream >> place.numa_node >> place.gpu >> place.island >> place.device_uuid >> place.switches >>
      place.hostname;
  for (std::string* const word : {&place.device_uuid, &place.switches}) {
    if (*word == "-") word->clear();
  }
  for (int cpu = 0; stream >> cpu;) place.cpus.push_back(cpu);
  return place;
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
  mine.island = device.island;
  mine.switches = switches;
  // A node is known by its lowest world rank; hostnames would put two containers of one name together.
  const Communicator local = world.split_by_shared_memory();
  const std::vector<std::int64_t> lowest = world.all_gather(local.min(std::int64_t{world.rank()}));
  const std::vector<std::int64_t> local_ranks = world.all_gather(std::int64_t{local.rank()});
  const std::vector<std::string> lines = world.all_gather(encode(mine));
  const std::vector<int> first = first_ranks(world);
  topology::Cluster cluster;
  std::map<std::int64_t, int> node_of;
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    topology::RankPlace place = decode(lines[rank]);
    place.rank = static_cast<int>(rank);
    place.first_rank = first[rank];
    place.node = node_of.emplace(lowest[rank], static_cast<int>(node_of.size())).first->second;
    place.local_rank = static_cast<int>(local_ranks[rank]);
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
