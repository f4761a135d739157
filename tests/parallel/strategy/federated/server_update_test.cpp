#include "parallel/strategy/federated/server_update.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dtrain::parallel {
namespace {

/// What three rounds with the mean updates 0.5, -0.25 and 0.002 make of a weight of 1.
double after_three(const ServerUpdate::Config& config) {
  auto values = at::ones({3}, at::kDouble);
  ServerUpdate server(config, values);
  for (const double change : {0.5, -0.25, 0.002}) {
    auto mean = at::full({3}, change, at::kDouble);
    server.apply(values, mean);
  }
  return values[1].item<double>();
}

TEST(ServerUpdateTest, TakesTheMeanAtItsRate) {
  EXPECT_NEAR(after_three({}), 1.252, 1e-12);
  EXPECT_NEAR(after_three({.rate = 0.5}), 1.126, 1e-12);
}

TEST(ServerUpdateTest, MomentumAddsUpTheMeans) {
  // 0.5; 0.9 x 0.5 - 0.25 = 0.2; 0.9 x 0.2 + 0.002 = 0.182
  EXPECT_NEAR(after_three({.optimizer = "momentum", .rate = 0.1, .beta1 = 0.9}), 1 + 0.1 * 0.882, 1e-12);
}

TEST(ServerUpdateTest, AdamAndYogiFollowTheirFormulas) {
  for (const std::string optimizer : {"adam", "yogi"}) {
    double x = 1;
    double m = 0;
    double v = ServerUpdate::kTau * ServerUpdate::kTau;
    for (const double d : {0.5, -0.25, 0.002}) {
      m = 0.9 * m + 0.1 * d;
      const double sign = v - d * d > 0 ? 1 : -1;
      v = optimizer == "adam" ? 0.99 * v + 0.01 * d * d : v - 0.01 * d * d * sign;
      x += 0.03 * m / (std::sqrt(v) + 1e-3);
    }
    EXPECT_NEAR(after_three({.optimizer = optimizer, .rate = 0.03, .beta1 = 0.9}), x, 1e-12) << optimizer;
  }
}

TEST(ServerUpdateTest, GoesOnFromRestoredMoments) {
  auto values = at::ones({2}, at::kDouble);
  ServerUpdate one({.optimizer = "adam", .rate = 0.1}, values);
  auto mean = at::full({2}, 0.3, at::kDouble);
  one.apply(values, mean);
  auto continued = values.clone();
  ServerUpdate other({.optimizer = "adam", .rate = 0.1}, values);
  for (std::size_t i = 0; i < 2; ++i) {
    auto moments = other.state()[i].values;
    moments.copy_(one.state()[i].values);
  }
  auto next = at::full({2}, -0.2, at::kDouble);
  auto same = next.clone();
  one.apply(values, next);
  other.apply(continued, same);
  EXPECT_TRUE(values.equal(continued));
}

}  // namespace
}  // namespace dtrain::parallel
