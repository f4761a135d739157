// What a queue that a thread drives costs the compute thread while others are on their way, as with gradients
// on GPUs: how long it takes to put an operation in, and how late it learns that the one it waits for is
// complete.
//   queue_bench [--benchmark_out=FILE --benchmark_out_format=json]
#include <benchmark/benchmark.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "comm/mpi/mpi_environment.hpp"
#include "comm/queue.hpp"
#include "comm/watch/health.hpp"
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

/// Complete once `due_ns` has passed; says when that was noticed.
class Due final : public Operation {
 public:
  Due(std::int64_t due_ns, std::atomic<std::int64_t>& completed_ns)
      : due_ns_(due_ns), completed_ns_(completed_ns) {}
  bool advance() override {
    const auto now_ns = steady_ns();
    if (now_ns < due_ns_) return false;
    completed_ns_ = now_ns;
    return true;
  }
  std::string_view name() const override { return "due"; }

 private:
  const std::int64_t due_ns_;
  std::atomic<std::int64_t>& completed_ns_;
};

constexpr int kAtOnce = 16;

struct Driven {
  NullSpanSink spans;
  Communicator self = Communicator::duplicate(MPI_COMM_SELF);
  Health health{self, self, {0}, false};
  Queue queue{{.drive = Drive::thread}, spans, health};
};

/// Besides the mean, the median and the time that one in a hundred takes longer than.
void report(benchmark::State& state, std::vector<double>& times_s) {
  std::ranges::sort(times_s);
  state.counters["median_us"] = 1e6 * times_s[times_s.size() / 2];
  state.counters["p99_us"] = 1e6 * times_s[times_s.size() * 99 / 100];
}

void submit(benchmark::State& state) {
  Driven driven;
  Queue& queue = driven.queue;
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
  report(state, times_s);
}
BENCHMARK(submit)->UseManualTime()->Iterations(10000);

/// From the completion of one operation until who waits for it goes on.
void wait(benchmark::State& state) {
  Driven driven;
  std::atomic<bool> over = false;
  for (int i = 0; i < state.range(0); ++i) driven.queue.submit(std::make_unique<Lasting>(over));
  std::atomic<std::int64_t> completed_ns = 0;
  std::vector<double> times_s;
  for (auto _ : state) {
    driven.queue.submit(std::make_unique<Due>(steady_ns() + 200'000, completed_ns)).wait();
    times_s.push_back(static_cast<double>(steady_ns() - completed_ns) * 1e-9);
    state.SetIterationTime(times_s.back());
  }
  over = true;
  driven.queue.drain();
  report(state, times_s);
}
BENCHMARK(wait)->ArgName("others")->Arg(0)->Arg(kAtOnce - 1)->UseManualTime()->Iterations(2000);

}  // namespace

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
