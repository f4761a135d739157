#include "parallel/step/balancing.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dtrain::parallel {
namespace {

/// Two data ranks, of which the test is the first, and 8 micro-batches.
class BalancingTest : public testing::Test {
 protected:
  /// A window of steps in which a micro-batch takes so long here, and there.
  void window(double here_s, double there_s) {
    there_s_ = there_s;
    for (std::size_t k = 0; k < Balancing::kWindow; ++k) {
      const auto mine = static_cast<std::size_t>(owned_[0].size());
      balancing_.step(++step_, here_s * static_cast<double>(mine), mine);
    }
  }

  double there_s_ = 0;
  std::int64_t step_ = 0;
  Ownership owned_ = even_ownership(8, 2);
  std::vector<std::int64_t> changes_;  // first steps
  std::vector<std::string> said_;
  std::vector<double> gathered_;
  Balancing balancing_{{.micro_batches = 8,
                        .data_ranks = 2,
                        .lead = 7,
                        .gather =
                            [this](double mine) {
                              gathered_.push_back(mine);
                              return std::vector<double>{mine, there_s_};
                            },
                        .change =
                            [this](std::int64_t first, const Ownership& owned, const std::string& words) {
                              changes_.push_back(first);
                              owned_ = owned;
                              said_.push_back(words);
                            }}};
};

TEST_F(BalancingTest, EqualRanksKeepWhatTheyHave) {
  for (int k = 0; k < 7 + 4; ++k) window(0.1, 0.1);
  EXPECT_TRUE(changes_.empty());
  EXPECT_EQ(gathered_.size(), 3U + 1U) << "after 1, 3 and 7 windows, and then each four";
}

TEST_F(BalancingTest, ASlowRankGivesMicroBatchesAwayAndTakesThemBack) {
  window(0.1, 0.3);
  ASSERT_EQ(changes_, (std::vector<std::int64_t>{static_cast<std::int64_t>(Balancing::kWindow) + 7}));
  EXPECT_EQ(owned_[0].size(), 6);
  EXPECT_EQ(owned_[1].size(), 2);
  EXPECT_NE(said_[0].find("compute 6, 2 of a step's 8"), std::string::npos) << said_[0];
  window(0.1, 0.3);
  EXPECT_EQ(changes_.size(), 1U) << "nothing is left to gain";
  window(0.1, 0.3);
  window(0.1, 0.1);
  EXPECT_EQ(gathered_.size(), 3U) << "the second time after two windows, of which the newest counts";
  ASSERT_EQ(changes_.size(), 2U);
  EXPECT_EQ(owned_[0].size(), 4);
}

TEST_F(BalancingTest, NoiseChangesNothing) {
  // 5 of 8 here would take 0.5 s and 4 there take 0.54 s: less than a tenth is to be saved.
  window(0.1, 0.135);
  EXPECT_TRUE(changes_.empty());
}

TEST_F(BalancingTest, OneStepThatWasHeldUpSaysNothing) {
  there_s_ = 0.1;
  for (std::size_t k = 0; k < Balancing::kWindow; ++k) balancing_.step(++step_, k == 3 ? 40.0 : 0.4, 4);
  EXPECT_TRUE(changes_.empty());
  EXPECT_DOUBLE_EQ(gathered_.at(0), 0.1);
}

TEST_F(BalancingTest, RanksWithoutASpeedAreLeftAlone) {
  there_s_ = 0;
  for (std::size_t k = 0; k < Balancing::kWindow; ++k) balancing_.step(++step_, 0, 0);
  EXPECT_TRUE(changes_.empty());
  EXPECT_EQ(gathered_.size(), 1U) << "and take part all the same";
}

}  // namespace
}  // namespace dtrain::parallel
