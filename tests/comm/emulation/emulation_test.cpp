#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "comm/emulation/link_delays.hpp"
#include "comm/emulation/slow_compute.hpp"
#include "comm/emulation/virtual_clock.hpp"
#include "core/clock.hpp"

namespace dtrain::comm {
namespace {

/// Each of three ranks on a node of its own, 1 Gb/s and 5 ms between them; rank 2 is 4 times as slow.
topology::Fabric three_nodes() {
  return {.file = "three.toml",
          .clock = topology::Fabric::Clock::computed,
          .compute_s_per_sample = 1e-3,
          .nodes = {{0}, {1}, {2}},
          .slow = {{.rank = 2, .factor = 4}},
          .links = {{.link = {.latency_s = 0.005, .bytes_per_s = 125e6}}}};
}

TEST(VirtualClockTest, ComputingTakesTheTimeOfASampleTimesTheSlowness) {
  const auto fabric = three_nodes();
  VirtualClock usual(fabric, 0);
  VirtualClock slow(fabric, 2);
  usual.compute(1, 16);
  slow.compute(1, 16);
  EXPECT_DOUBLE_EQ(usual.now_s(), 0.016);
  EXPECT_DOUBLE_EQ(slow.now_s(), 0.064);
}

TEST(VirtualClockTest, AMessageIsHereWhenItsLinkHasCarriedIt) {
  const auto fabric = three_nodes();
  VirtualClock clock(fabric, 0);
  clock.receive(1, 1.0, 125e3);
  EXPECT_DOUBLE_EQ(clock.now_s(), 1.006);
  clock.receive(1, 0.5, 125e3);
  EXPECT_DOUBLE_EQ(clock.now_s(), 1.006) << "one that came earlier changes nothing";
}

TEST(VirtualClockTest, ACollectiveBeginsWhenTheLastRankCame) {
  const auto fabric = three_nodes();
  VirtualClock clock(fabric, 0);
  clock.compute(1, 10);
  EXPECT_FALSE(clock.owes());
  clock.count_collective(0.25);
  clock.count_collective(0.25);
  EXPECT_TRUE(clock.owes());
  clock.settle(2.0);
  EXPECT_DOUBLE_EQ(clock.now_s(), 2.5);
  EXPECT_FALSE(clock.owes());
  clock.count_collective(100);
  clock.forget();
  EXPECT_FALSE(clock.owes());
}

TEST(VirtualClockTest, WhatGoesAsideTakesNoTimeUntilItIsWaitedFor) {
  topology::Fabric fabric;
  fabric.compute_s_per_sample = 1;
  VirtualClock clock(fabric, 0);
  const auto count_aside = [&clock](double seconds) {
    clock.begin_aside();
    clock.count_collective(seconds);
    return clock.end_aside();
  };
  clock.begin_aside();
  EXPECT_FALSE(clock.end_aside()) << "nothing went";
  clock.compute(1, 2);
  clock.count_collective(1);
  EXPECT_TRUE(count_aside(5));
  EXPECT_TRUE(clock.owes());
  clock.settle(3);  // the last rank came at 3, and the collective took until 4
  EXPECT_DOUBLE_EQ(clock.now_s(), 4);
  EXPECT_FALSE(clock.owes());
  clock.compute(2, 1);
  EXPECT_TRUE(count_aside(10));  // goes after the first, which ends at 9
  clock.settle(6);
  EXPECT_DOUBLE_EQ(clock.now_s(), 5) << "this rank waits for no other";
  clock.await_aside();
  EXPECT_DOUBLE_EQ(clock.now_s(), 9);
  clock.compute(3, 20);
  clock.await_aside();
  EXPECT_DOUBLE_EQ(clock.now_s(), 29) << "it was there at 19";
  EXPECT_TRUE(count_aside(2));
  clock.await_aside();
  clock.settle(30);
  EXPECT_DOUBLE_EQ(clock.now_s(), 32) << "it goes beside nothing";
  EXPECT_FALSE(clock.owes());
}

// Of 12.5 MB on 4 nodes a ring's link carries 3/2 of it, which takes .15 s, and 6 latencies pass; of 8 bytes
// a tree needs 4 of them.
TEST(VirtualClockTest, CollectivesTakeWhatTheirFormulaSays) {
  const topology::Fabric::Link link{.latency_s = 0.005, .bytes_per_s = 125e6};
  EXPECT_NEAR(all_reduce_seconds(link, 4, 12.5e6), 0.15 + 6 * 0.005, 1e-12);
  EXPECT_NEAR(half_ring_seconds(link, 4, 12.5e6), 0.075 + 3 * 0.005, 1e-12);
  EXPECT_NEAR(all_reduce_seconds(link, 4, 8), 4 * (0.005 + 8 / 125e6), 1e-12);
  EXPECT_NEAR(broadcast_seconds(link, 5, 0), 3 * 0.005, 1e-12);
  EXPECT_EQ(all_reduce_seconds(link, 1, 12.5e6), 0) << "within a node";
}

TEST(LinkDelaysTest, BytesOfALinkPassOneAfterAnotherAndTheLatencyFollows) {
  const auto fabric = three_nodes();
  LinkDelays delays(fabric, 0);
  constexpr std::int64_t kMs = 1'000'000;
  EXPECT_EQ(delays.due_ns(1, 125'000, 100 * kMs), 106 * kMs);
  EXPECT_EQ(delays.due_ns(1, 125'000, 100 * kMs), 107 * kMs) << "behind the first";
  EXPECT_EQ(delays.due_ns(2, 125'000, 100 * kMs), 106 * kMs) << "on another link";
  EXPECT_EQ(delays.due_ns(1, 0, 200 * kMs), 205 * kMs);
  EXPECT_EQ(delays.due_ns(0, 125'000, 300 * kMs), 300 * kMs) << "from itself";
}

TEST(SlowComputeTest, ForwardAndBackwardOfASlowRankTakeLonger) {
  const auto fabric = three_nodes();
  NullSpanSink nothing;
  SlowCompute slow(fabric, 2, nothing);
  const auto spent_ns = [&slow](Phase phase) {
    const auto start = steady_ns();
    slow.enter(phase, "work");
    while (steady_ns() - start < 5'000'000) continue;
    slow.leave();
    return steady_ns() - start;
  };
  slow.begin_step(1);
  EXPECT_GE(spent_ns(Phase::forward), 20'000'000);
  EXPECT_GE(spent_ns(Phase::backward), 20'000'000);
  SlowCompute usual(fabric, 1, nothing);
  usual.begin_step(1);
  usual.enter(Phase::forward, "work");
  const auto start = steady_ns();
  usual.leave();
  EXPECT_LT(steady_ns() - start, 5'000'000) << "no sleep for a rank that is not slow";
}

TEST(SlowComputeTest, WhatARankWaitsForOthersIsNotStretched) {
  auto fabric = three_nodes();
  fabric.slow = {{.rank = 2, .factor = 100}};
  NullSpanSink nothing;
  SlowCompute slow(fabric, 2, nothing);
  slow.begin_step(1);
  const auto start = steady_ns();
  slow.enter(Phase::backward, "all");
  slow.enter(Phase::forward, "again");
  slow.enter(Phase::exposed_communication, "wait");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  slow.leave();
  slow.leave();
  slow.leave();
  EXPECT_LT(steady_ns() - start, 2'000'000'000) << "100 times as long would be 10 s, and twice a thousand";
}

}  // namespace
}  // namespace dtrain::comm
