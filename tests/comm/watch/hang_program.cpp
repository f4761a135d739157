// The last rank does not come; the others say why and end without MPI.
//   hang_program WHAT NODES    WHAT: compute (it goes on alone), suspended (SIGSTOP), other (another
//   collective)
// Prints `waiter RANK after SECONDS: TEXT`.
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "comm/groups.hpp"
#include "comm/mpi/mpi_environment.hpp"
#include "comm/survey/discover.hpp"
#include "comm/watch/flight_recorder.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace {

using namespace dtrain;

void stay_away(comm::Groups& groups, const std::string& what, std::vector<float>& values) {
  const ScopedSpan span(groups.recorder(), Phase::backward, "backward");
  groups.recorder().begin_step(7);
  if (what == "suspended") std::raise(SIGSTOP);
  if (what == "other") groups.data().broadcast(comm::Buffer::of(std::span(values)), 0).wait();
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  comm::MpiEnvironment mpi(argc, argv, comm::Recovery::on);
  const std::string what = argv[1];
  const int nodes = std::stoi(argv[2]);
  const auto world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  topology::Cluster cluster = comm::discover_cluster(world, comm::affinity_mask());
  for (topology::RankPlace& place : cluster.ranks) {  // invented nodes, dealt in turn
    place.node = place.rank % nodes;
    place.local_rank = place.rank / nodes;
  }
  NullSpanSink sink;
  comm::Groups groups = comm::make_groups(world, cluster, topology::Mesh(cluster, {.data = world.size()}),
                                          {.timeout_s = 1, .recovery = mpi.can_recover()}, sink);
  std::vector<float> values(200'000, 1.0F);
  const double start_s = steady_s();
  try {
    for (int round = 0;; ++round) {
      if (round == 5 && world.rank() == world.size() - 1) stay_away(groups, what, values);
      groups.data().all_reduce(comm::Buffer::of(std::span(values)), comm::ReduceOp::sum).wait();
    }
  } catch (const Error& error) {
    std::printf("waiter %d after %.3f: %s\n", world.rank(), steady_s() - start_s, error.what());
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(5));  // for the others to say theirs
    mpi.abort(5);
  }
}
