#include "record/step_clock.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/clock.hpp"

namespace dtrain::record {
namespace {

// Until the clock has moved on by `ns`: the test then knows a lower bound, and nothing about the machine's
// speed.
void pass(std::int64_t ns) {
  const std::int64_t until = steady_ns() + ns;
  while (steady_ns() < until) {
  }
}

constexpr std::int64_t kStep = 200'000;  // 0.2 ms
constexpr double kStepS = 2e-4;

TEST(StepClockTest, ExclusivePhasesAddUpToTheWallTime) {
  const double before_s = steady_s();
  StepClock clock;
  for (int i = 0; i < 3; ++i) {
    const ScopedSpan forward(clock, Phase::forward, "forward");
    pass(kStep);
  }
  pass(kStep);
  {
    const ScopedSpan backward(clock, Phase::backward, "backward");
    pass(kStep);
  }
  const PhaseTotals totals = clock.take();
  const double elapsed_s = steady_s() - before_s;
  EXPECT_NEAR(totals.times.exclusive_s(), totals.wall_s, 1e-12);
  EXPECT_LE(totals.wall_s, elapsed_s);
  EXPECT_GE(totals.times.forward_time_s, 3 * kStepS);
  EXPECT_GE(totals.times.backward_time_s, kStepS);
  EXPECT_GE(totals.times.other_time_s, kStepS) << "what no span claims";
  EXPECT_EQ(totals.times.optimizer_time_s, 0);
}

TEST(StepClockTest, AWaitForAnotherStageIsIdleTimeWhateverTheWaitInsideIsCalled) {
  StepClock clock;
  {
    const ScopedSpan idle(clock, Phase::pipeline_idle, "wait for activations");
    const ScopedSpan waiting(clock, Phase::exposed_communication, "wait");
    pass(kStep);
  }
  const PhaseTotals totals = clock.take();
  EXPECT_GE(totals.times.pipeline_idle_time_s, kStepS);
  EXPECT_EQ(totals.times.exposed_communication_time_s, 0);
}

TEST(StepClockTest, AnInnerSpansTimeIsTakenFromTheOuterOne) {
  StepClock clock;
  {
    const ScopedSpan backward(clock, Phase::backward, "backward");
    const std::int64_t start = steady_ns();
    {
      const ScopedSpan waiting(clock, Phase::exposed_communication, "wait");
      pass(kStep);
      const ScopedSpan again(clock, Phase::backward, "hook");  // the outer phase once more, deeper
      pass(kStep);
    }
    pass(kStep);
    const PhaseTotals totals = clock.take();
    const double inside_s = static_cast<double>(steady_ns() - start) * 1e-9;
    EXPECT_GE(totals.times.exposed_communication_time_s, kStepS);
    EXPECT_GE(totals.times.backward_time_s, 2 * kStepS);
    EXPECT_LE(totals.times.exposed_communication_time_s, inside_s - 2 * kStepS) << "counted a moment twice";
    EXPECT_NEAR(totals.times.exclusive_s(), totals.wall_s, 1e-12);
  }
}

TEST(StepClockTest, ASpanThatIsOpenWhileTakingIsDivided) {
  StepClock clock;
  clock.enter(Phase::checkpoint, "save");
  pass(kStep);
  EXPECT_GE(clock.take().times.checkpoint_time_s, kStepS);
  pass(kStep);
  clock.leave();
  const PhaseTotals rest = clock.take();
  EXPECT_GE(rest.times.checkpoint_time_s, kStepS);
  EXPECT_EQ(clock.take().times.checkpoint_time_s, 0);
}

TEST(StepClockTest, OverlappingPhasesAndBytesComeFromAnyThreadAndAreNotInTheSum) {
  StepClock clock;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&clock] {
      for (int i = 0; i < 1000; ++i) {
        clock.overlapped(Phase::communication, "all_reduce", 0, 1'000'000'000);
        clock.overlapped(Phase::transfer, "copy", 0, 500'000'000);
        clock.moved(3, 5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const PhaseTotals totals = clock.take();
  EXPECT_DOUBLE_EQ(totals.times.communication_time_s, 4000);
  EXPECT_DOUBLE_EQ(totals.times.transfer_time_s, 2000);
  EXPECT_EQ(totals.bytes_sent, 12000);
  EXPECT_EQ(totals.bytes_received, 20000);
  EXPECT_LT(totals.times.exclusive_s(), 1000);
  EXPECT_EQ(clock.take().bytes_sent, 0);
}

TEST(StepClockTest, SpansDeeperThanTheStackStillAddUp) {
  StepClock clock;
  constexpr int kDeep = 100;
  for (int i = 0; i < kDeep; ++i) clock.enter(i % 2 == 0 ? Phase::forward : Phase::backward, "nested");
  pass(kStep);
  for (int i = 0; i < kDeep; ++i) clock.leave();
  clock.leave();  // one too many does no harm
  pass(kStep);
  const PhaseTotals totals = clock.take();
  EXPECT_NEAR(totals.times.exclusive_s(), totals.wall_s, 1e-12);
  EXPECT_GE(totals.times.other_time_s, kStepS) << "the stack did not return to empty";
}

}  // namespace
}  // namespace dtrain::record
