#include "kernels/update.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace dtrain::kernels {
namespace {

// The formulas in long double, element by element; tests/optim compares with PyTorch.
TEST(UpdateTest, SgdFollowsItsFormula) {
  constexpr std::size_t kCount = 77;
  std::vector<double> parameters(kCount);
  std::vector<double> gradients(kCount);
  std::vector<double> momentum(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    parameters[i] = std::sin(static_cast<double>(i));
    gradients[i] = std::cos(static_cast<double>(i));
    momentum[i] = 0.1 * static_cast<double>(i);
  }
  const auto before = parameters;
  const auto velocity = momentum;
  sgd_update(parameters.data(), gradients.data(), momentum.data(), kCount,
             {.scale = 0.25, .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  for (std::size_t i = 0; i < kCount; ++i) {
    const long double expected = 0.9L * velocity[i] + 0.25L * gradients[i] + 0.01L * before[i];
    EXPECT_NEAR(momentum[i], static_cast<double>(expected), 1e-14);
    EXPECT_NEAR(parameters[i], static_cast<double>(before[i] - 0.1L * expected), 1e-14);
  }
}

TEST(UpdateTest, SgdWithoutMomentumNeedsNoState) {
  std::vector<float> parameters = {1.0F, 2.0F};
  const std::vector<float> gradients = {4.0F, 8.0F};
  sgd_update<float>(parameters.data(), gradients.data(), nullptr, 2, {.scale = 0.5, .learning_rate = 0.25});
  EXPECT_FLOAT_EQ(parameters[0], 0.5F);
  EXPECT_FLOAT_EQ(parameters[1], 1.0F);
}

TEST(UpdateTest, AdamsFirstStepMovesByTheLearningRate) {
  std::vector<double> parameters(9, 1.0);
  const std::vector<double> gradients(9, -3.0);
  std::vector<double> first(9);
  std::vector<double> second(9);
  adam_update(parameters.data(), gradients.data(), first.data(), second.data(), 9,
              {.scale = 0.5, .learning_rate = 0.01, .bias1 = 0.1, .bias2 = 0.001});
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(parameters[i], 1.01, 1e-9);
    EXPECT_NEAR(first[i], -0.15, 1e-15);
    EXPECT_NEAR(second[i], 0.00225, 1e-15);
  }
}

/// The smallest float times 0.9 rounds to itself: each later step would be slow.
TEST(UpdateTest, MomentsOfAParameterWhoseGradientStaysZeroBecomeNoTinyNumbers) {
  constexpr std::size_t kCount = 11;
  constexpr int kSteps = 1100;  // 0.9^1100 = 5e-51
  const std::vector<float> zero(kCount, 0.0F);
  std::vector<float> parameters(kCount, 1.0F);
  std::vector<float> momentum(kCount, 1.0F);
  std::vector<float> first(kCount, 1.0F);
  std::vector<float> second(kCount, 1e-37F);
  for (int step = 0; step < kSteps; ++step) {
    sgd_update(parameters.data(), zero.data(), momentum.data(), kCount,
               {.learning_rate = 0.01, .momentum = 0.9});
    adam_update(parameters.data(), zero.data(), first.data(), second.data(), kCount,
                {.learning_rate = 0.01, .beta2 = 0.99, .eps = 1.0, .bias1 = 1.0, .bias2 = 1.0});
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(momentum[i], 0.0F);
    EXPECT_EQ(second[i], 0.0F);
    EXPECT_TRUE(std::isnormal(first[i])) << first[i];  // stays where a tenth of it is too small
    EXPECT_LT(first[i], 20 * std::numeric_limits<float>::min());
  }
}

TEST(UpdateTest, LeavesTinyNumbersToOthers) {
  volatile float tiny = std::numeric_limits<float>::denorm_min();
  std::vector<float> parameters = {1.0F};
  const std::vector<float> gradients = {1.0F};
  sgd_update<float>(parameters.data(), gradients.data(), nullptr, 1, {.learning_rate = 0.5});
  EXPECT_GT(tiny * 2.0F, 0.0F);
}

}  // namespace
}  // namespace dtrain::kernels
