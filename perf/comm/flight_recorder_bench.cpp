// What keeping an operation of communication, and knowing what a rank does, costs the compute thread.
//   flight_recorder_bench [--benchmark_out=FILE --benchmark_out_format=json]
#include <benchmark/benchmark.h>
#include <mpi.h>

#include <vector>

#include "comm/mpi/mpi_environment.hpp"
#include "comm/watch/flight_recorder.hpp"
#include "core/clock.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::comm;

struct Recorded {
  NullSpanSink spans;
  Communicator self = Communicator::duplicate(MPI_COMM_SELF);
  FlightRecorder recorder{self, 0, spans};
  std::vector<int> members = {0, 1, 2, 3};
};

// The queue reads the clock at its start and end for spans anyway.
void operation(benchmark::State& state) {
  Recorded recorded;
  const std::int64_t now_ns = steady_ns();
  std::uint64_t number = 0;
  for (auto _ : state) {
    const Label label{.operation = "all_reduce",
                      .group = "data",
                      .number = ++number,
                      .group_id = 5,
                      .members = &recorded.members,
                      .count = 1000};
    const auto flight = recorded.recorder.queued(label);
    recorded.recorder.started(flight, now_ns);
    recorded.recorder.ended(flight, now_ns);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(operation);

void span(benchmark::State& state) {
  Recorded recorded;
  for (auto _ : state) {
    recorded.recorder.enter(Phase::forward, "forward");
    recorded.recorder.leave();
    benchmark::ClobberMemory();
  }
}
BENCHMARK(span);

}  // namespace

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
