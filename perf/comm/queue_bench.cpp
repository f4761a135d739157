// How long the compute thread takes to put an operation into a queue that a thread drives, while others are
// on their way: as with gradients on GPUs.
//   queue_bench [--benchmark_out=FILE --benchmark_out_format=json]
#include <benchmark/benchmark.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "comm/health.hpp"
#include "comm/mpi_environment.hpp"
#include "comm/queue.hpp"
#include "core/clock.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::comm;

void spin_for(std::int64_t ns) {
  for (const auto end_ns = steady_ns() + ns; steady_ns() < end_ns;) continue;
}

/// To look at it takes as long as asking CUDA for an event and NCCL for errors does, about.
class Lasting final : public Operation {
 public:
  explicit Lasting(const std::atomic<bool>& over) : over_(over) {}
  bool advance() override {
    spin_for(2000);
    return over_;
  }
  std::string_view name() const override { return "lasting"; }

 private:
  const std::atomic<bool>& over_;
};

/// Besides the mean, the time that one in a hundred takes longer than.
void submit(benchmark::State& state) {
  constexpr int kAtOnce = 16;
  NullSpanSink spans;
  const Communicator self = Communicator::duplicate(MPI_COMM_SELF);
  Health health(self, self, {0}, false);
  Queue queue({.drive = Drive::thread}, spans, health);
  std::atomic<bool> over = false;
  std::vector<double> times_s;
  int under_way = 0;
  for (auto _ : state) {
    if (under_way == kAtOnce || under_way == 0) {
      over = true;
      queue.drain();
      over = false;
      under_way = 1;
      queue.submit(std::make_unique<Lasting>(over));
    }
    spin_for(20'000);  // the compute thread has other things to do in between
    const auto begin_ns = steady_ns();
    queue.submit(std::make_unique<Lasting>(over));
    const double time_s = static_cast<double>(steady_ns() - begin_ns) * 1e-9;
    ++under_way;
    times_s.push_back(time_s);
    state.SetIterationTime(time_s);
  }
  over = true;
  queue.drain();
  std::ranges::sort(times_s);
  state.counters["median_us"] = 1e6 * times_s[times_s.size() / 2];
  state.counters["p99_us"] = 1e6 * times_s[times_s.size() * 99 / 100];
}
BENCHMARK(submit)->UseManualTime()->Iterations(10000);

}  // namespace

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
