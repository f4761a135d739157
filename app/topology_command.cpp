#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "comm/communicator.hpp"
#include "comm/discover.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "record/rows.hpp"
#include "topology/mesh.hpp"

namespace dtrain::app {
namespace {

void print_table(const topology::Cluster& cluster, const topology::Mesh& mesh) {
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
                    place.hostname, record::cpu_list(place.cpus));
  }
  std::fputs(text.c_str(), stdout);
}

}  // namespace

Task topology_command(const Words& words, const Environment& environment) {
  std::string mesh_text;
  Parser parser("topology", "Shows where each rank runs and its place on the mesh.");
  parser.add_option("--mesh", mesh_text, "ranks along each axis, such as data=4 [data=N]")
      ->option_text("AXES");
  if (const auto help = parse(parser, words)) return print_task(*help);
  return {.alone = {}, .together = [mesh_text, environment](comm::MpiEnvironment& mpi) {
            const int size = mpi.world_size();
            comm::check_launch(size, environment.srun_tasks);
            const auto shape = mesh_text.empty() ? topology::MeshShape{size, 1, 1}
                                                 : topology::MeshShape::parse(mesh_text, size);
            const auto world = comm::Communicator::duplicate(MPI_COMM_WORLD);
            const auto cluster = comm::discover_cluster(world, comm::affinity_mask());
            const topology::Mesh mesh(cluster, shape);
            if (world.rank() == 0) print_table(cluster, mesh);
            return ExitCode::success;
          }};
}

}  // namespace dtrain::app
