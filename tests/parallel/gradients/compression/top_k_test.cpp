#include "parallel/gradients/compression/top_k.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "parallel/gradients/compression/nodes_in_memory.hpp"
#include "parallel/gradients/compression/placed_group.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Values = std::vector<std::vector<float>>;  // by node

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (auto& value : values) value = normal(random);
  return values;
}

TEST(LargestPlacesTest, AreThoseOfASort) {
  for (const std::size_t count : {1U, 2U, 100U, 1000U}) {
    const auto values = random_values(count, static_cast<unsigned>(count));
    for (const std::size_t wanted : {std::size_t{0}, std::size_t{1}, count / 3, count}) {
      std::vector<std::uint32_t> expected(count);
      std::iota(expected.begin(), expected.end(), 0U);
      std::ranges::stable_sort(expected, [&](std::uint32_t a, std::uint32_t b) {
        return std::abs(values[a]) > std::abs(values[b]);
      });
      expected.resize(wanted);
      std::ranges::sort(expected);
      EXPECT_EQ(largest_places(values, wanted), expected) << wanted << " of " << count;
    }
  }
}

TEST(LargestPlacesTest, OfEqualOnesTheFirstAreTaken) {
  const std::vector<float> values = {1, -2, 2, 0, -2, 1, 2};
  EXPECT_THAT(largest_places(values, 2), ElementsAre(1, 2));
  EXPECT_THAT(largest_places(values, 5), ElementsAre(0, 1, 2, 4, 6));
  EXPECT_THAT(largest_places(std::vector<float>(4, 0.0F), 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(largest_places({}, 3), IsEmpty());
  const std::vector<float> bad = {9, std::nanf(""), 1, -std::numeric_limits<float>::infinity()};
  EXPECT_THAT(largest_places(bad, 2), ElementsAre(1, 3));
}

/// Nodes that sum a bucket.
class Nodes {
 public:
  Nodes(std::size_t nodes, std::size_t count, double share) : errors(nodes, std::vector<float>(count, 0.0F)) {
    for (auto& error : errors) encodings_.emplace_back(share, error.data(), samples);
  }
  std::vector<std::size_t> sum(Values& values) {
    std::vector<comm::Encoding*> all;
    for (auto& encoding : encodings_) all.push_back(&encoding);
    return add_up(all, values);
  }
  const TopKEncoding& encoding() const { return encodings_.front(); }
  Values errors;
  float samples = 1;  // of a step

 private:
  std::deque<TopKEncoding> encodings_;
};

Values random_gradients(std::size_t nodes, std::size_t count, unsigned seed) {
  Values values;
  for (std::size_t node = 0; node < nodes; ++node)
    values.push_back(random_values(count, seed * 100 + static_cast<unsigned>(node)));
  return values;
}

TEST(TopKTest, WhatIsNotSentYetIsInTheErrors) {
  for (const std::size_t count : {2U, 3U}) {
    Nodes nodes(count, 500, 0.05);
    std::vector<double> given(500, 0);
    std::vector<double> sent(500, 0);
    for (unsigned step = 1; step <= 30; ++step) {
      auto values = random_gradients(count, 500, step);
      for (const auto& of_node : values)
        for (std::size_t i = 0; i < given.size(); ++i) given[i] += of_node[i];
      nodes.sum(values);
      for (std::size_t node = 1; node < count; ++node) EXPECT_EQ(values[node], values[0]);
      for (std::size_t i = 0; i < sent.size(); ++i) {
        sent[i] += values[0][i];
        double error = 0;
        for (const auto& of_node : nodes.errors) error += of_node[i];
        ASSERT_NEAR(sent[i] + error, given[i], 1e-4) << "step " << step;
      }
    }
  }
}

TEST(TopKTest, TheLargestOfEachNodeTravel) {
  Nodes nodes(2, 4, 0.25);
  Values values = {{1, 5, 2, 0}, {1, 0, -3, 0.5F}};
  nodes.sum(values);
  EXPECT_THAT(values[0], ElementsAre(0, 5, -3, 0));
  EXPECT_THAT(nodes.errors[0], ElementsAre(1, 0, 2, 0));
  EXPECT_THAT(nodes.errors[1], ElementsAre(1, 0, 0, 0.5F));
  values.assign(2, std::vector<float>(4, 0.0F));
  nodes.sum(values);
  EXPECT_THAT(values[0], ElementsAre(1, 0, 2, 0));
}

TEST(TopKTest, WhatAStepLeavesOutIsNoLargerInAStepOfFewerSamples) {
  Nodes nodes(2, 2, 0.5);
  nodes.samples = 64;
  Values values = {{128, 32}, {64, 64}};  // sums over the step's samples
  nodes.sum(values);
  EXPECT_THAT(values[0], ElementsAre(192, 0));
  EXPECT_THAT(nodes.errors[0], ElementsAre(0, 0.5F)) << "of one sample";
  EXPECT_THAT(nodes.errors[1], ElementsAre(0, 1));
  nodes.samples = 2;
  values.assign(2, {0, 1});
  nodes.sum(values);
  EXPECT_THAT(values[0], ElementsAre(0, 2 + 2 * 1.5F));
}

TEST(TopKTest, ANodeSendsEightBytesOfEachToEachOther) {
  for (const std::size_t count : {2U, 4U}) {
    Nodes nodes(count, 1000, 0.013);
    auto values = random_gradients(count, 1000, 1);
    EXPECT_EQ(nodes.encoding().bytes(1000), 8U * 13);
    for (const auto sent : nodes.sum(values)) EXPECT_EQ(sent, 8 * 13 * (count - 1));
  }
  const float samples = 1;
  EXPECT_EQ(TopKEncoding(0.001, nullptr, samples).sent_of(10), 1U) << "at least one";
  EXPECT_EQ(TopKEncoding(0.001, nullptr, samples).sent_of(0), 0U);
}

TEST(TopKTest, WhatIsNotFiniteIsSeenByAllNodes) {
  Nodes nodes(2, 100, 0.02);
  auto values = random_gradients(2, 100, 1);
  values[1][50] = std::nanf("");
  nodes.sum(values);
  for (const auto& of_node : values) EXPECT_TRUE(std::isnan(of_node[50]));
}

TEST(TopKTest, OfAModelTheFirstRankOfANodeHasTheErrors) {
  auto model = small_model();
  FlatParameters parameters(*model, at::kFloat);
  for (const bool leads : {false, true}) {
    TopKGradients gradients(0.1);
    PlacedGroup group({.node = 1, .nodes = 2, .leads = leads});
    gradients.lay_out(parameters, {{0, parameters.size()}}, group);
    EXPECT_EQ(gradients.state().size(), leads ? model->parameters().size() : 0);
  }
}

}  // namespace
}  // namespace dtrain::parallel
