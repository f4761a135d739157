#include "parallel/strategy/servers/dealing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

/// Copies that take random times for their micro-batches, some of them much longer than others.
struct Simulation {
  int copies = 4;
  int micro_batches = 4;
  int staleness = 2;
  std::int64_t steps = 2500;

  struct Seen {
    std::int64_t updates = 0;
    std::int64_t most_ahead = 0;  ///< Steps between a micro-batch that was dealt and the oldest missing one.
    std::int64_t most_late = 0;   ///< Updates between an update's parameters and it.
    std::int64_t waits = 0;
    std::set<std::pair<std::int64_t, int>> dealt;
  };
  Seen run(std::uint64_t seed) const {
    struct Copy {
      double free_at = 0;
      std::optional<WorkUnit> unit = {};
      std::int64_t version = 0;
    };
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> time(1.0);
    std::vector<Copy> all(static_cast<std::size_t>(copies));
    Dealing dealing({.first = 1, .last = steps}, micro_batches, staleness);
    Seen seen;
    double now = 0;
    while (!dealing.done()) {
      for (std::size_t c = 0; c < all.size(); ++c) {
        auto& copy = all[c];
        if (copy.unit) continue;
        copy.unit = dealing.deal();
        if (!copy.unit) {
          seen.waits += dealing.exhausted() ? 0 : 1;
          continue;
        }
        EXPECT_TRUE(seen.dealt.emplace(copy.unit->step, copy.unit->micro_batch).second) << "dealt twice";
        copy.version = seen.updates;
        copy.free_at = now + time(random) * (c == 0 ? 20 : 1);
        seen.most_ahead = std::max(seen.most_ahead, copy.unit->step - dealing.oldest());
      }
      Copy* first = nullptr;
      for (auto& copy : all) {
        if (copy.unit && (first == nullptr || copy.free_at < first->free_at)) first = &copy;
      }
      if (first == nullptr) {
        ADD_FAILURE() << "all copies wait";
        return seen;
      }
      now = first->free_at;
      seen.most_late = std::max(seen.most_late, seen.updates - first->version);
      ++seen.updates;
      dealing.applied(*std::exchange(first->unit, std::nullopt));
    }
    return seen;
  }
};

TEST(DealingTest, TheBoundHoldsInTenThousandUpdatesWithRandomDelays) {
  for (const int staleness : {1, 2, 4}) {
    const Simulation simulation{.staleness = staleness};
    const auto seen = simulation.run(static_cast<std::uint64_t>(staleness));
    EXPECT_EQ(seen.updates, 10'000);
    EXPECT_EQ(seen.dealt.size(), 10'000U) << "each micro-batch once";
    EXPECT_EQ(seen.most_ahead, staleness)
        << "a copy 20 times as slow lets the others come so far, not further";
    EXPECT_LE(seen.most_late, Dealing::most_late(4, staleness));
    EXPECT_GT(seen.most_late, 4) << "a slow copy is later than lock-step allows";
    EXPECT_GT(seen.waits, 0);
  }
}

TEST(DealingTest, WithoutStalenessAStepIsDealtOnceTheOneBeforeIsApplied) {
  const auto seen = Simulation{.staleness = 0}.run(1);
  EXPECT_EQ(seen.updates, 10'000);
  EXPECT_EQ(seen.most_ahead, 0);
  EXPECT_LT(seen.most_late, 4) << "of its own step";
}

TEST(DealingTest, MoreCopiesThanMicroBatchesTakeTurns) {
  const auto seen = Simulation{.copies = 7, .micro_batches = 2, .staleness = 1, .steps = 500}.run(3);
  EXPECT_EQ(seen.updates, 1000);
  EXPECT_EQ(seen.most_ahead, 1);
}

TEST(DealingTest, StepsAreNumberedAsInTheRun) {
  Dealing dealing({.first = 11, .last = 12}, 1, 4);
  const auto first = dealing.deal();
  const auto second = dealing.deal();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->step, 11);
  EXPECT_EQ(second->step, 12);
  EXPECT_TRUE(dealing.exhausted());
  EXPECT_FALSE(dealing.deal());
  dealing.applied(*second);
  EXPECT_EQ(dealing.oldest(), 11) << "a later step does not hide an older one";
  dealing.applied(*first);
  EXPECT_TRUE(dealing.done());
}

TEST(DealingTest, AnUpdateThatWasNotDealtOrWasAppliedIsRefused) {
  Dealing dealing({.first = 1, .last = 2}, 2, 1);
  EXPECT_THROW(dealing.applied({.step = 1, .micro_batch = 0}), Error);
  const auto unit = dealing.deal();
  ASSERT_TRUE(unit);
  dealing.applied(*unit);
  EXPECT_THROW(dealing.applied(*unit), Error);
  EXPECT_THROW(dealing.applied({.step = 3, .micro_batch = 0}), Error);
  EXPECT_THROW(dealing.applied({.step = 1, .micro_batch = 2}), Error);
}

}  // namespace
}  // namespace dtrain::parallel
