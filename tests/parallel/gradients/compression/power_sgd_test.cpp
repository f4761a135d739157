#include "parallel/gradients/compression/power_sgd.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <vector>

#include "parallel/gradients/compression/nodes_in_memory.hpp"
#include "parallel/gradients/compression/placed_group.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

using Values = std::vector<std::vector<float>>;  // by node

constexpr std::size_t kRows = 12;
constexpr std::size_t kColumns = 30;
constexpr std::size_t kPlain = 10;
constexpr std::size_t kCount = kRows * kColumns + kPlain;  // the matrix, then what travels as it is

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (auto& value : values) value = normal(random);
  return values;
}

/// Nodes that sum a bucket of one matrix.
class Nodes {
 public:
  Nodes(std::size_t nodes, std::size_t rank) {
    for (std::size_t node = 0; node < nodes; ++node) {
      errors.emplace_back(kRows * kColumns, 0.0F);
      factors.push_back(random_values(rank * kColumns, 77));
    }
    for (std::size_t node = 0; node < nodes; ++node) {
      const LowRankMatrix matrix{
          .size = {kRows, kColumns, rank}, .error = errors[node].data(), .factor = factors[node].data()};
      encodings_.emplace_back(std::vector<LowRankMatrix>{matrix},
                              std::vector<Range>{{kRows * kColumns, kCount}}, samples);
    }
  }

  std::vector<std::size_t> sum(Values& values) {
    std::vector<comm::Encoding*> all;
    for (auto& encoding : encodings_) all.push_back(&encoding);
    return add_up(all, values);
  }
  double error(std::size_t i) const {
    double sum = 0;
    for (const auto& of_node : errors) sum += of_node[i];
    return sum;
  }
  PowerSgdEncoding& encoding() { return encodings_.front(); }

  Values errors;
  float samples = 1;  // of a step
  Values factors;

 private:
  std::deque<PowerSgdEncoding> encodings_;
};

Values random_gradients(std::size_t nodes, unsigned seed) {
  Values values;
  for (std::size_t node = 0; node < nodes; ++node)
    values.push_back(random_values(kCount, seed * 100 + static_cast<unsigned>(node)));
  return values;
}

TEST(PowerSgdTest, ASumOfLowRankIsExact) {
  for (const std::size_t rank : {1U, 3U}) {
    Values values(2, std::vector<float>(kCount, 0.0F));
    for (std::size_t node = 0; node < 2; ++node) {  // both have the same columns
      const auto left = random_values(kRows * rank, 5);
      const auto right = random_values(rank * kColumns, 6 + static_cast<unsigned>(node));
      kernels::add_low_rank(values[node].data(), left.data(), right.data(), 1, {kRows, kColumns, rank});
    }
    const auto given = values;
    Nodes nodes(2, rank);
    nodes.sum(values);
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_NEAR(values[0][i], given[0][i] + given[1][i], 1e-4);
    for (std::size_t i = 0; i < kRows * kColumns; ++i) EXPECT_NEAR(nodes.error(i), 0, 1e-4);
  }
}

TEST(PowerSgdTest, NodesAgreeAndSmallOnesTravelAsTheyAre) {
  for (const std::size_t count : {2U, 3U, 4U}) {
    Nodes nodes(count, 2);
    for (unsigned step = 1; step <= 3; ++step) {
      auto values = random_gradients(count, step);
      const auto given = values;
      nodes.sum(values);
      for (std::size_t node = 1; node < count; ++node) {
        EXPECT_EQ(values[node], values[0]);
        EXPECT_EQ(nodes.factors[node], nodes.factors[0]);
      }
      for (std::size_t i = kRows * kColumns; i < kCount; ++i) {
        double sum = 0;
        for (const auto& of_node : given) sum += of_node[i];
        EXPECT_NEAR(values[0][i], sum, 1e-5);
      }
    }
  }
}

TEST(PowerSgdTest, WhatIsNotSentYetIsInTheErrors) {
  for (const std::size_t count : {2U, 3U}) {
    Nodes nodes(count, 2);
    std::vector<double> given(kRows * kColumns, 0);
    std::vector<double> sent(kRows * kColumns, 0);
    for (unsigned step = 1; step <= 20; ++step) {
      auto values = random_gradients(count, step);
      for (const auto& of_node : values)
        for (std::size_t i = 0; i < given.size(); ++i) given[i] += of_node[i];
      nodes.sum(values);
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] += values[0][i];
      for (std::size_t i = 0; i < sent.size(); ++i)
        ASSERT_NEAR(sent[i] + nodes.error(i), given[i], 1e-3) << "step " << step;
    }
  }
}

TEST(PowerSgdTest, WhatAStepLeavesOutIsNoLargerInAStepOfFewerSamples) {
  Nodes nodes(2, 1);
  std::vector<double> given(kRows * kColumns, 0);  // of one sample
  std::vector<double> sent(kRows * kColumns, 0);
  for (unsigned step = 1; step <= 6; ++step) {
    nodes.samples = step % 3 == 0 ? 1 : 64;
    auto values = random_gradients(2, step);
    for (auto& of_node : values) {
      for (auto& value : of_node) value *= nodes.samples;
      for (std::size_t i = 0; i < given.size(); ++i) given[i] += of_node[i] / nodes.samples;
    }
    const auto plain = values;
    nodes.sum(values);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      sent[i] += values[0][i] / nodes.samples;
      ASSERT_NEAR(sent[i] + nodes.error(i), given[i], 1e-3) << "step " << step;
    }
    for (std::size_t i = kRows * kColumns; i < kCount; ++i)
      ASSERT_NEAR(values[0][i], plain[0][i] + plain[1][i], 1e-3);
  }
}

TEST(PowerSgdTest, TheSameGradientInEachStepArrivesInTheMean) {
  Nodes nodes(2, 1);
  const auto given = random_gradients(2, 1);
  std::vector<double> mean(kRows * kColumns, 0);
  constexpr int kSteps = 400;
  for (int step = 0; step < kSteps; ++step) {
    auto values = given;
    nodes.sum(values);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += values[0][i] / kSteps;
  }
  for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i], given[0][i] + given[1][i], 0.25);
}

TEST(PowerSgdTest, AStepWithoutGradientStopsNothing) {
  Nodes nodes(2, 2);
  Values nothing(2, std::vector<float>(kCount, 0.0F));
  nodes.sum(nothing);
  for (const float value : nothing[0]) EXPECT_EQ(value, 0);
  double sent = 0;
  for (unsigned step = 1; step <= 2; ++step) {
    auto values = random_gradients(2, step);
    nodes.sum(values);
    for (std::size_t i = 0; i < kRows * kColumns; ++i) sent += std::abs(values[0][i]);
  }
  EXPECT_GT(sent, 10);
}

TEST(PowerSgdTest, WhatIsNotFiniteIsSeenByAllNodes) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Nodes nodes(2, 2);
    auto values = random_gradients(2, 1);
    values[1][7] = bad;
    nodes.sum(values);
    for (const auto& of_node : values) {
      bool finite = true;
      for (const float value : of_node) finite &= std::isfinite(value);
      EXPECT_FALSE(finite);
    }
  }
}

TEST(PowerSgdTest, ANodeSendsBothFactorsAndTheRest) {
  for (const std::size_t rank : {1U, 2U, 4U}) {
    Nodes nodes(2, rank);
    auto values = random_gradients(2, 1);
    const std::size_t floats = kPlain + rank * (kRows + kColumns);
    EXPECT_EQ(nodes.encoding().bytes(kCount), 4 * floats);
    const auto sent = nodes.sum(values);
    EXPECT_EQ(sent[0], 4 * floats);
    EXPECT_EQ(sent[1], 4 * floats);
  }
}

TEST(PowerSgdTest, WhatDoesNotPayTravelsAsItIs) {
  EXPECT_EQ(low_rank_size(64, 64 * 64, 2).rank, 2U);
  EXPECT_EQ(low_rank_size(64, 64 * 64, 16).rank, 16U);
  EXPECT_EQ(low_rank_size(64, 64 * 64, 17).rank, 0U) << "more than half";
  EXPECT_EQ(low_rank_size(10, 100, 200).rank, 0U);
  EXPECT_EQ(low_rank_size(1, 1000, 1).rank, 0U);
  EXPECT_EQ(low_rank_size(512, 512 * 4608, 2).columns, 4608U);
}

TEST(PowerSgdTest, OfAModelTheFirstRankOfANodeHasTheErrors) {
  auto model = small_model("64,32");
  FlatParameters parameters(*model, at::kFloat);
  for (const bool leads : {false, true}) {
    PowerSgdGradients gradients(2, 1);
    PlacedGroup group({.node = 1, .nodes = 3, .leads = leads});
    gradients.lay_out(parameters, {{0, parameters.size()}}, group);
    int errors = 0;
    int factors = 0;
    for (const auto& tensor : gradients.state()) {
      EXPECT_TRUE(tensor.is_of_optimizer());
      EXPECT_FALSE(tensor.anew.empty());
      ASSERT_TRUE(tensor.owner.copy);
      const bool is_error = tensor.group == "optimizer/powersgd_residual";
      (is_error ? errors : factors) += 1;
      EXPECT_EQ(tensor.owner.copy->adds_up, is_error);
      EXPECT_EQ(tensor.owner.copy->count, is_error ? 3 : 1);
      EXPECT_EQ(tensor.shard.has_value(), is_error);
      EXPECT_NE(tensor.name.find("weight"), std::string::npos) << "biases travel as they are";
    }
    EXPECT_EQ(factors, 2) << "the last layer's weight is small";
    EXPECT_EQ(errors, leads ? factors : 0);
  }
}

}  // namespace
}  // namespace dtrain::parallel
