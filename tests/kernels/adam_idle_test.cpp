#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/update.hpp"

namespace dtrain::kernels {
namespace {

/// Idle steps made up for in one pass equal adam_update with zero gradients, step by step.
template <class T>
void expect_same(AdamUpdate::Decay decay, double weight_decay, double tolerance) {
  constexpr std::size_t kCount = 77;
  constexpr int kBefore = 3;
  constexpr int kIdle = 40;
  std::vector<T> values(kCount);
  std::vector<T> first(kCount);
  std::vector<T> second(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<T>(std::sin(static_cast<double>(i)));
    first[i] = static_cast<T>(1e-7 * std::cos(static_cast<double>(i)));  // eps matters
    second[i] = static_cast<T>(1e-15 * static_cast<double>(i % 5 + 1));
  }
  auto idle_values = values;
  auto idle_first = first;
  auto idle_second = second;
  const std::vector<T> zero(kCount, T{0});
  std::vector<AdamIdleStep> steps;
  for (int k = 1; k <= kIdle; ++k) {
    AdamUpdate update{
        .learning_rate = 1e-3 * (1.0 + 0.1 * k), .beta2 = 0.99, .weight_decay = weight_decay, .decay = decay};
    update.bias1 = 1.0 - std::pow(update.beta1, kBefore + k);
    update.bias2 = 1.0 - std::pow(update.beta2, kBefore + k);
    adam_update(values.data(), zero.data(), first.data(), second.data(), kCount, update);
    steps.push_back({.moved = update.learning_rate / update.bias1 * std::pow(update.beta1, k),
                     .spread = std::sqrt(std::pow(update.beta2, k) / update.bias2),
                     .shrink = 1.0 - update.learning_rate * weight_decay});
  }
  adam_idle<T>(idle_values.data(), idle_first.data(), idle_second.data(), kCount, steps, 1e-8);
  // The moments may fade now, or in the next update.
  auto later_values = idle_values;
  auto later_first = idle_first;
  auto later_second = idle_second;
  const double idle1 = std::pow(0.9, kIdle);
  const double idle2 = std::pow(0.99, kIdle);
  adam_fade<T>(idle_first.data(), idle_second.data(), kCount, idle1, idle2);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(idle_values[i], values[i], tolerance) << i;
    EXPECT_NEAR(idle_first[i], first[i], tolerance * 1e-7) << i;
    EXPECT_NEAR(idle_second[i], second[i], tolerance * 1e-13) << i;
  }
  EXPECT_GT(std::abs(values[1] - std::sin(1.0)), 1e-3) << "nothing moved";
  const std::vector<T> gradient(kCount, static_cast<T>(1e-7));
  AdamUpdate next{.learning_rate = 1e-3, .beta2 = 0.99, .bias1 = 0.9, .bias2 = 0.8};
  adam_update(idle_values.data(), gradient.data(), idle_first.data(), idle_second.data(), kCount, next);
  next.idle1 = idle1;
  next.idle2 = idle2;
  adam_update(later_values.data(), gradient.data(), later_first.data(), later_second.data(), kCount, next);
  EXPECT_EQ(later_values, idle_values);
  EXPECT_EQ(later_first, idle_first);
  EXPECT_EQ(later_second, idle_second);
}

TEST(AdamIdleTest, EqualsZeroGradientsStepByStep) {
  expect_same<double>(AdamUpdate::Decay::coupled, 0.0, 1e-14);
  expect_same<double>(AdamUpdate::Decay::decoupled, 0.1, 1e-14);
  expect_same<float>(AdamUpdate::Decay::coupled, 0.0, 2e-6);
  expect_same<float>(AdamUpdate::Decay::decoupled, 0.1, 2e-6);
}

}  // namespace
}  // namespace dtrain::kernels
