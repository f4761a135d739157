// One rank kills itself in the middle of a run; the others report what they learnt and end without MPI.
//   death_program WHERE    all_reduce (shared memory), ring (messages), send, barrier, received (what it had
//                          been sent, of which the sender has seen nothing yet), dup (while a communicator
//                          is made; the others must be able to leave it behind on a newer one)
// Prints `survivor RANK after SECONDS: TEXT`, where the clock starts when the others stop hearing from it.
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/groups.hpp"
#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/mpi_environment.hpp"
#include "comm/mpi/transfer.hpp"
#include "comm/mpi/ulfm.hpp"
#include "comm/mpi/unsettled.hpp"
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

/// The last rank receives what rank 0 has sent, and dies. Rank 0 looks a moment later: often it hears of the
/// death before MPI has looked at all the news that the messages were read, which then tells it of sends that
/// it has given up. The two are kept apart by sleep, since every other wait would look; on a machine too busy
/// for that, or where MPI cannot read another process's memory, the case is an easier one.
void die_having_received(const comm::Communicator& world) {
  using namespace std::chrono_literals;
  constexpr int kMessages = 90;
  const auto start = std::chrono::steady_clock::now();
  const int victim = world.size() - 1;
  const bool dies = world.rank() == victim;
  const comm::Channel channel{.comm = world.handle(), .tag = 7};
  const auto data = std::make_shared<std::vector<std::byte>>(20'000);  // longer than what MPI sends unasked
  if (dies) std::this_thread::sleep_until(start + 200ms);
  std::vector<comm::Transfer> transfers;
  for (int i = 0; i < kMessages; ++i) {
    transfers.push_back(dies ? comm::Transfer::receive(channel, data->data(), data->size(), 0, data)
                             : comm::Transfer::send(channel, data->data(), data->size(), victim, data));
  }
  if (dies) {
    bool complete = false;
    while (!complete && std::chrono::steady_clock::now() < start + 500ms) {
      complete = true;
      for (comm::Transfer& transfer : transfers) complete = transfer.test() && complete;
    }
    std::raise(SIGKILL);
  }
  std::this_thread::sleep_until(start + 1200ms);
  for (int looks = 0; looks < 1000 && !transfers.empty(); ++looks) {
    try {
      if (transfers.back().test()) transfers.pop_back();
    } catch (const Error&) {
      transfers.pop_back();
    }
  }
  transfers.clear();
  while (std::chrono::steady_clock::now() < start + 1700ms) {
    static_cast<void>(comm::in_use(data->data(), data->size()));  // looks on
  }
}

void die_in_a_dup() {
  MPI_Comm older = MPI_COMM_NULL;
  MPI_Comm newer = MPI_COMM_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm left = MPI_COMM_NULL;
  for (MPI_Comm* comm : {&older, &newer}) {
    MPI_Comm_dup(MPI_COMM_WORLD, comm);
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
  }
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(older, &rank);
  MPI_Comm_size(older, &size);
  if (rank == size - 1) std::raise(SIGKILL);
  if (MPI_Comm_dup(older, &made) == MPI_SUCCESS) throw Error("made it without a rank", {.subject = "MPI"});
  comm::ulfm::revoke(older);
  if (comm::ulfm::shrink(newer, &left) != MPI_SUCCESS)
    throw Error("could not leave it behind", {.subject = "MPI"});
  int left_behind = 0;
  MPI_Comm_size(left, &left_behind);
  if (left_behind != size - 1) throw Error("left others behind", {.subject = "MPI"});
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
    if (where == "received") {
      die_having_received(world);
      last_s = steady_s();
      comm::check_losses(world.handle(), "messages to a rank that is gone", 5);
      throw Error("the death was not noticed", {.subject = "MPI"});
    }
    if (where == "dup") {
      die_in_a_dup();
      comm::check_losses(world.handle(), "making a communicator", 5);
      throw Error("the death was not noticed", {.subject = "MPI"});
    }
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
