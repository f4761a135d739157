// One rank kills itself in the middle of a run; the others report what they learnt and end without MPI.
//   death_program WHERE    all_reduce (shared memory), ring (messages), send, barrier, idle
// Prints `survivor RANK after SECONDS: TEXT`, where the clock starts when the others stop hearing from it.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "comm/groups.hpp"
#include "comm/mpi/mpi_environment.hpp"
#include "comm/survey/discover.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace {

using namespace dtrain;

void communicate(comm::Groups& groups, const std::string& where, std::vector<float>& values) {
  const comm::Buffer buffer = comm::Buffer::of(std::span(values));
  comm::Group& world = groups.world();
  if (where == "all_reduce") {
    world.all_reduce(buffer, comm::ReduceOp::sum).wait();
  } else if (where == "ring") {
    world.all_reduce(buffer, comm::ReduceOp::sum, comm::Algorithm::ring).wait();
  } else if (where == "mpi") {
    world.all_reduce(buffer, comm::ReduceOp::sum, comm::Algorithm::mpi).wait();
  } else if (where == "send") {
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    std::vector<float> received(values.size());
    const comm::Handle sent = world.send(buffer, next);
    world.receive(comm::Buffer::of(std::span(received)), previous).wait();
    sent.wait();
  } else {
    world.barrier().wait();
  }
}

}  // namespace

int main(int argc, char** argv) {
  comm::MpiEnvironment mpi(argc, argv, comm::Recovery::on);
  const std::string where = argc > 1 ? argv[1] : "barrier";
  const int nodes = argc > 2 ? std::stoi(argv[2]) : 1;
  const auto world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  topology::Cluster cluster = comm::discover_cluster(world, comm::affinity_mask());
  for (topology::RankPlace& place : cluster.ranks) {  // invented nodes, dealt in turn
    place.node = place.rank % nodes;
    place.local_rank = place.rank / nodes;
  }
  NullSpanSink sink;
  comm::Groups groups = comm::make_groups(world, cluster, topology::Mesh(cluster, {.data = world.size()}),
                                          {.timeout_s = 20, .recovery = mpi.can_recover()}, sink);
  std::vector<float> values(200'000, 1.0F);
  const int victim = world.size() - 1;
  double last_s = steady_s();
  try {
    for (int round = 0;; ++round) {
      if (round == 50 && world.rank() == victim) std::raise(SIGKILL);
      communicate(groups, where, values);
      last_s = steady_s();
    }
  } catch (const Error& error) {
    std::printf("survivor %d after %.3f: code %d: %s\n", world.rank(), steady_s() - last_s,
                static_cast<int>(error.code()), error.what());
    mpi.exit_without_finalising(static_cast<int>(error.code()));
  }
}
