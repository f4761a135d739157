#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/groups.hpp"
#include "comm/mpi/communicator.hpp"
#include "comm/survey/discover.hpp"
#include "comm/survey/hardware.hpp"
#include "comm/survey/measurement.hpp"
#include "comm/watch/shared_failure.hpp"
#include "commands.hpp"
#include "core/clock.hpp"
#include "core/counted.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "core/shared_failure.hpp"
#include "options/command_line.hpp"
#include "parallel/device/rank_device.hpp"
#include "record/measurements_file.hpp"
#include "run/run_contents.hpp"
#include "topology/mesh.hpp"
#include "topology/placement.hpp"
#include "train/setup/topology_rows.hpp"

namespace dtrain::app {
namespace {

constexpr int kGroupsShown = 16;

struct Wish {
  std::string mesh;
  std::string order = "placed";
  std::string device = "cpu";
  bool benchmark = false;
  std::vector<std::string> sizes = {"4KiB", "256KiB", "4MiB", "36MiB"};
  std::string output = "topology.h5";
};

std::string table_of_ranks(const topology::Cluster& cluster, const topology::Mesh& mesh) {
  std::string text = fmt::format("ranks {}, nodes {}, mesh {}\n", cluster.world_size(), cluster.node_count(),
                                 mesh.shape().to_string());
  text += fmt::format("{:>5} {:>5} {:>6} {:>5} {:>4} {:>5} {:>5} {:>7}  {:<16} {}\n", "rank", "node", "local",
                      "numa", "gpu", "data", "pipe", "tensor", "hostname", "cores");
  for (const auto& place : cluster.ranks) {
    const auto where = mesh.coordinates(place.rank);
    text +=
        fmt::format("{:>5} {:>5} {:>6} {:>5} {:>4} {:>5} {:>5} {:>7}  {:<16} {}\n", place.rank, place.node,
                    place.local_rank, place.numa_node < 0 ? "-" : std::to_string(place.numa_node),
                    place.gpu < 0 ? "-" : std::to_string(place.gpu), where.data, where.pipe, where.tensor,
                    place.hostname, number_list(place.cpus));
  }
  return text;
}

/// What the nodes are made of; `hardware` by rank. Like nodes once.
std::string table_of_nodes(const topology::Cluster& cluster, const std::vector<std::string>& hardware) {
  std::map<std::string, std::set<std::string>> nodes;
  for (const auto& place : cluster.ranks) {
    if (place.local_rank == 0) nodes[hardware[static_cast<std::size_t>(place.rank)]].insert(place.hostname);
  }
  std::string text = "\n";
  for (const auto& [made_of, names] : nodes) {
    text += fmt::format("{}: {}\n",
                        names.size() > kGroupsShown ? fmt::format("{} nodes", names.size())
                                                    : fmt::format("{}", fmt::join(names, ", ")),
                        made_of);
  }
  return text;
}

/// What neighbours of a group, the last and the first among them, talk over.
std::string links_of(const topology::Cluster& cluster, const std::vector<int>& group) {
  std::set<topology::Link> links;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const auto place = [&](std::size_t index) {
      return cluster.ranks[static_cast<std::size_t>(group[index])];
    };
    links.insert(topology::link_between(place(i), place((i + 1) % group.size())));
  }
  std::vector<std::string_view> names;
  for (const auto link : links) names.push_back(topology::name_of(link));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Which ranks exchange messages, over what.
std::string table_of_groups(const topology::Cluster& cluster, const topology::Mesh& mesh) {
  using topology::Axis;
  std::string text;
  for (const auto& [axis, name, carries] :
       {std::tuple(Axis::tensor, "tensor", "each layer's sums"),
        std::tuple(Axis::pipe, "pipe", "activations"), std::tuple(Axis::data, "data", "gradients")}) {
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < cluster.world_size(); ++rank) groups.insert(mesh.group(rank, axis));
    if (groups.begin()->size() == 1) continue;
    text += fmt::format("\n{} groups, {} of {} ranks, pass on {}\n", name, groups.size(),
                        groups.begin()->size(), carries);
    int shown = 0;
    for (const auto& group : groups) {
      if (shown++ == kGroupsShown) break;
      text +=
          fmt::format("  {:<24} {}\n", fmt::format("{}", fmt::join(group, " ")), links_of(cluster, group));
    }
    if (shown > kGroupsShown) text += fmt::format("  and {} more\n", groups.size() - kGroupsShown);
  }
  return text;
}

std::string size_name(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 20) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

std::string line_of(const comm::Measurement& one) {
  return fmt::format("{:<12} {:>5}  {:<15} {:<13} {:>8} {:>12.1f} {:>10.1f} .. {:<10.1f} {:>9.3f} {:>9.3f}\n",
                     one.group, one.ranks, one.operation, one.algorithm, size_name(one.bytes),
                     one.median_s * 1e6, one.least_s * 1e6, one.greatest_s * 1e6,
                     one.algorithm_bytes_per_s() * 1e-9, one.bus_bytes_per_s() * 1e-9);
}

std::vector<std::size_t> sizes_of(const Wish& wish) {
  std::vector<std::size_t> sizes;
  for (const std::string& text : wish.sizes) {
    const auto bytes = parse_size(text);
    if (!bytes || *bytes < std::int64_t{sizeof(float)}) {
      throw usage_error("that is not a size", fmt::format("--sizes {}", text),
                        "write some such as 4KiB,36MiB");
    }
    sizes.push_back(static_cast<std::size_t>(*bytes));
  }
  return sizes;
}

/// Before minutes are spent on what cannot be kept. Rank 0 writes; collective.
void check_output(const Wish& wish, const comm::Communicator& world) {
  const auto failure = failure_of([&] {
    if (world.rank() != 0) return;
    const auto folder = std::filesystem::absolute(wish.output).parent_path();
    if (::access(folder.c_str(), W_OK) != 0)
      throw usage_error("its folder is not there, or cannot be written to",
                        fmt::format("--output {}", wish.output), "name another file");
    require_not_kept("--output", wish.output);
  });
  if (const auto shared = comm::first_failure(failure, world)) throw Error(*shared);
}

/// All collectives between the devices of a data group; and in the CPU's memory among all ranks, within the
/// nodes, and between their first ranks. Rank 0's are all that is shown: it is in every one of these.
std::vector<comm::Measurement> measure(const std::vector<std::size_t>& sizes, comm::Groups& groups,
                                       const topology::Cluster& cluster) {
  comm::MeasurementPlan plan;
  plan.sizes = sizes;
  const std::vector<comm::Algorithm> algorithms = {comm::Algorithm::mpi, comm::Algorithm::ring,
                                                   comm::Algorithm::tree, comm::Algorithm::hierarchical};
  std::vector<comm::Measurement> all;
  const auto add = [&](comm::Group& group) {
    if (group.size() < 2) return;
    for (const auto& measured :
         {comm::measure_all_reduce(group, plan, algorithms), measure_collectives(group, plan)}) {
      all.insert(all.end(), measured.begin(), measured.end());
    }
  };
  const auto on_devices = comm::measure_on_device(groups.data(), plan);
  all.insert(all.end(), on_devices.begin(), on_devices.end());
  add(groups.world());
  if (cluster.node_count() > 1) {
    add(groups.node());
    groups.world().barrier().wait();
    if (groups.is_leader()) add(groups.leaders());
  }
  groups.world().barrier().wait();
  return all;
}

void keep(const Wish& wish, const std::vector<comm::Measurement>& measured, const topology::Cluster& cluster,
          const topology::Mesh& mesh, const std::string& start_time_utc) {
  record::MeasurementsFile file = {.mesh = mesh.shape().to_string(),
                                   .start_time_utc = start_time_utc,
                                   .mpi = comm::MpiEnvironment::library_version(),
                                   .topology = train::topology_rows({}, cluster, mesh, 0),
                                   .measurements = {}};
  for (const auto& one : measured) {
    file.measurements.push_back({.group = one.group,
                                 .ranks = one.ranks,
                                 .operation = one.operation,
                                 .algorithm = one.algorithm,
                                 .bytes = static_cast<std::int64_t>(one.bytes),
                                 .median_s = one.median_s,
                                 .least_s = one.least_s,
                                 .greatest_s = one.greatest_s,
                                 .algorithm_bandwidth = one.algorithm_bytes_per_s(),
                                 .bus_bandwidth = one.bus_bytes_per_s()});
  }
  h5::Library library;
  file.write(wish.output, library);
}

ExitCode show(const Wish& wish, const Environment& environment, comm::MpiEnvironment& mpi) {
  const int size = mpi.world_size();
  comm::check_launch(size, environment.srun_tasks);
  const auto order = topology::parse_rank_order(wish.order);
  const auto shape =
      wish.mesh.empty() ? topology::MeshShape{size, 1, 1} : topology::MeshShape::parse(wish.mesh, size);
  const auto world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  const auto device = parallel::open_device(wish.device, world);
  const auto cluster =
      comm::discover_cluster(world, comm::affinity_mask(), device.place, environment.switches);
  const topology::Mesh mesh(cluster, shape, order);
  const bool speaks = world.rank() == 0;
  const auto hardware = world.all_gather(comm::read_hardware(true).to_string());
  if (speaks) {
    fmt::print("{}{}{}", table_of_ranks(cluster, mesh), table_of_nodes(cluster, hardware),
               table_of_groups(cluster, mesh));
  }
  if (!wish.benchmark) return ExitCode::success;
  std::fflush(stdout);
  check_output(wish, world);
  const std::string start_time_utc = utc_now();
  NullSpanSink sink;
  auto groups = comm::make_groups(
      world, cluster, mesh,
      {.order = order, .transport = device.transport, .device = device.index, .stream = device.stream}, sink);
  const auto measured = measure(sizes_of(wish), groups, cluster);
  if (!speaks) return ExitCode::success;
  fmt::print("\n{:<12} {:>5}  {:<15} {:<13} {:>8} {:>12} {:>24} {:>9} {:>9}\n", "group", "ranks", "operation",
             "algorithm", "size", "median us", "range", "alg GB/s", "bus GB/s");
  for (const auto& one : measured) fmt::print("{}", line_of(one));
  keep(wish, measured, cluster, mesh, start_time_utc);
  fmt::print("\nkept in {}\n", printable(wish.output));
  return ExitCode::success;
}

}  // namespace

Task topology_command(const Words& words, const Environment& environment) {
  Wish wish;
  Parser parser(
      "topology",
      "Shows where each rank runs, its place on the mesh, and which groups exchange what over which links.");
  parser.add_option("--mesh", wish.mesh, "ranks along each axis, such as data=4 [data=N]")
      ->option_text("AXES");
  parser
      .add_option("--rank-order", wish.order,
                  "order of ranks on the mesh: by placement, or as launched [placed]")
      ->option_text("placed|launched");
  parser.add_option("--device", wish.device, "device of the ranks: cpu, or cuda to show their GPUs [cpu]")
      ->option_text("NAME");
  parser.add_flag("--benchmark", wish.benchmark,
                  "measure all collectives: within nodes, between nodes, between GPUs");
  parser.add_option("--sizes", wish.sizes, "sizes of the messages [4KiB,256KiB,4MiB,36MiB]")
      ->delimiter(',')
      ->option_text("SIZES");
  parser.add_option("--output", wish.output, "file for the measurements [topology.h5]")->option_text("FILE");
  if (const auto help = parse(parser, words)) return print_task(*help);
  topology::parse_rank_order(wish.order);
  if (wish.device == "auto" || !parallel::is_device_name(wish.device))
    throw usage_error("there is no such device", "--device " + wish.device, "use cpu or cuda");
  sizes_of(wish);
  for (const char* option : {"--sizes", "--output"}) {
    require(wish.benchmark || parser.count(option) == 0, "is for --benchmark",
            {.subject = option, .advice = "leave it out, or add --benchmark", .code = ExitCode::usage});
  }
  return {.alone = {}, .together = [wish, environment](comm::MpiEnvironment& mpi) {
            return show(wish, environment, mpi);
          }};
}

}  // namespace dtrain::app
