#include "kernels/perceptron.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace dtrain::kernels {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
class PerceptronTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(PerceptronTest, Types);

TYPED_TEST(PerceptronTest, ARectifiedValueIsPositiveOrZeroOrNotANumber) {
  using T = TypeParam;
  std::vector<T> values;
  for (int i = 0; i < 21; ++i) values.push_back(static_cast<T>(i % 3 - 1));
  values[7] = static_cast<T>(kNan);
  auto gradient = std::vector<T>(values.size(), T{5});
  rectify(values.data(), values.size());
  rectify_gradient(gradient.data(), values.data(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i == 7) {
      EXPECT_TRUE(std::isnan(values[i]));
      EXPECT_EQ(gradient[i], T{5});
      continue;
    }
    const bool positive = i % 3 == 2;
    EXPECT_EQ(values[i], positive ? T{1} : T{0}) << i;
    EXPECT_EQ(gradient[i], positive ? T{5} : T{0}) << i;
  }
}

TYPED_TEST(PerceptronTest, TheCrossEntropyAndItsGradientEqualTheDefinition) {
  using T = TypeParam;
  constexpr std::size_t kRows = 5;
  constexpr std::size_t kClasses = 4;
  const std::vector<std::int64_t> targets = {0, 3, 2, 1, 3};
  std::vector<T> logits(kRows * kClasses);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<T>(3 * std::sin(1.7 * double(i)));
  auto gradient = logits;
  const auto sums = cross_entropy(gradient.data(), targets.data(), kRows, kClasses);
  double loss = 0;
  std::int64_t correct = 0;
  for (std::size_t r = 0; r < kRows; ++r) {
    const T* const row = &logits[r * kClasses];
    double sum = 0;
    std::size_t largest = 0;
    for (std::size_t c = 0; c < kClasses; ++c) {
      sum += std::exp(double(row[c]));
      if (row[c] > row[largest]) largest = c;
    }
    const auto target = static_cast<std::size_t>(targets[r]);
    loss += std::log(sum) - double(row[target]);
    correct += largest == target ? 1 : 0;
    for (std::size_t c = 0; c < kClasses; ++c) {
      const double expected = std::exp(double(row[c])) / sum - (c == target ? 1 : 0);
      EXPECT_NEAR(gradient[r * kClasses + c], expected, 8 * std::numeric_limits<T>::epsilon());
    }
  }
  EXPECT_NEAR(sums.loss, loss, 64 * std::numeric_limits<T>::epsilon());
  EXPECT_EQ(sums.correct, correct);
  EXPECT_FALSE(sums.unknown);
}

TYPED_TEST(PerceptronTest, LargeLogitsDoNotOverflowAndTheFirstOfEqualOnesCounts) {
  using T = TypeParam;
  std::vector<T> logits = {T{3000}, T{3000}, T{-3000}};
  const std::vector<std::int64_t> targets = {0};
  const auto sums = cross_entropy(logits.data(), targets.data(), 1, 3);
  EXPECT_NEAR(sums.loss, std::log(2.0), 1e-6);
  EXPECT_EQ(sums.correct, 1);
  EXPECT_EQ(logits, (std::vector<T>{T(-0.5), T(0.5), T(0)}));
}

TYPED_TEST(PerceptronTest, ALogitThatIsNotANumberMakesTheLossNone) {
  using T = TypeParam;
  for (const std::size_t place : {0, 1, 2}) {
    std::vector<T> logits = {T{1}, T{2}, T{3}};
    logits[place] = static_cast<T>(kNan);
    const std::vector<std::int64_t> targets = {1};
    EXPECT_TRUE(std::isnan(cross_entropy(logits.data(), targets.data(), 1, 3).loss)) << place;
  }
}

TYPED_TEST(PerceptronTest, ARowWithoutAClassIsLeftOutAndATargetThatIsNoneIsTold) {
  using T = TypeParam;
  std::vector<T> logits = {T{1}, T{2}, T{3}, T{4}};
  const std::vector<std::int64_t> none = {-100, -100};
  const auto sums = cross_entropy(logits.data(), none.data(), 2, 2);
  EXPECT_EQ(sums.loss, 0);
  EXPECT_EQ(sums.correct, 0);
  EXPECT_EQ(logits, std::vector<T>(4, T{0}));
  for (const std::int64_t wrong : {-1, 2}) {
    const std::vector<std::int64_t> targets = {1, wrong};
    const auto found = cross_entropy(logits.data(), targets.data(), 2, 2).unknown;
    EXPECT_EQ(found.value_or(7), 1U) << wrong;
  }
}

}  // namespace
}  // namespace dtrain::kernels
