// What recording costs the compute thread: per span, per clock reading, per recorded step.
//   record_bench [--benchmark_out=FILE --benchmark_out_format=json]
#include <benchmark/benchmark.h>

#include <filesystem>
#include <string>

#include "core/clock.hpp"
#include "h5/library.hpp"
#include "record/rank_recorder.hpp"
#include "record/step_clock.hpp"
#include "record/trace_writer.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::record;

std::string scratch(const char* name) { return (std::filesystem::temp_directory_path() / name).string(); }

// The part of a span that no design can leave out: it reads the clock twice.
void two_clock_readings(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(steady_ns());
    benchmark::DoNotOptimize(steady_ns());
  }
}
BENCHMARK(two_clock_readings);

void span(benchmark::State& state) {
  StepClock clock;
  for (auto _ : state) const ScopedSpan one(clock, Phase::forward, "forward");
}
BENCHMARK(span);

void span_with_trace(benchmark::State& state) {
  const std::string path = scratch("dtrain-benchmark-trace.json");
  {
    TraceWriter trace(path, 0, steady_ns());
    StepClock clock;
    clock.trace_to(&trace);
    for (auto _ : state) const ScopedSpan one(clock, Phase::forward, "forward");
  }
  std::filesystem::remove(path);
}
BENCHMARK(span_with_trace);

// As the training loop does it: a step of 20 spans, one take and one row; the recorder writes a burst a
// second.
void step_of_20_spans(benchmark::State& state) {
  const std::string path = scratch("dtrain-benchmark-rank.h5");
  h5::Library library;
  {
    RankRecorder recorder(library, {.path = path});
    StepClock clock;
    std::int64_t step = 0;
    for (auto _ : state) {
      for (int i = 0; i < 20; ++i) const ScopedSpan one(clock, Phase::forward, "forward");
      const PhaseTotals totals = clock.take();
      recorder.step({.step = ++step,
                     .epoch = 1,
                     .loss = 0.5,
                     .weight = 64,
                     .time_s = totals.wall_s,
                     .phases = totals.times});
    }
  }
  std::filesystem::remove(path);
}
BENCHMARK(step_of_20_spans);

void recorded_row(benchmark::State& state) {
  const std::string path = scratch("dtrain-benchmark-rank.h5");
  h5::Library library;
  {
    RankRecorder recorder(library, {.path = path});
    StepRow row;
    for (auto _ : state) {
      ++row.step;
      recorder.step(row);
    }
  }
  std::filesystem::remove(path);
}
BENCHMARK(recorded_row)->Iterations(500'000);  // bounded: a real run makes thousands a second at most

}  // namespace

BENCHMARK_MAIN();
