// State of a device's parameters in the host's memory, on the stand-in of a device.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <vector>

#include "optim/fused_optimizer.hpp"
#include "optim/optimizer.hpp"
#include "support/guarded_device.hpp"

namespace dtrain::optim {
namespace {

/// Parameters that are updated by drawn gradients, and their optimizer.
struct Updated {
  Updated(OptimizerConfig config, std::int64_t count, bool on_host) {
    config.offload = on_host ? "optimizer" : "none";
    const auto there = at::TensorOptions().dtype(at::kFloat).device(kGuarded);
    parameters = (at::arange(count, at::kFloat) * 0.37).sin().to(kGuarded);
    // Biases have no decay, and a gap follows them.
    optimizer = make_optimizer(config, count, {{0, count / 3, 0.1}, {count / 3 + 64, count, 0}}, there);
  }

  void step(std::int64_t number) {
    const at::NoGradGuard no_grad;
    const auto gradients = (at::arange(parameters.numel(), at::kFloat) * 0.11 * number).cos().to(kGuarded);
    optimizer->step(parameters, gradients, 0.5, 0.01, number);
  }

  at::Tensor parameters;
  std::unique_ptr<Optimizer> optimizer;
};

class OffloadTest : public testing::TestWithParam<const char*> {
 protected:
  static OptimizerConfig config() {
    OptimizerConfig config{.name = GetParam()};
    if (config.name == "sgd") config.momentum = 0.9;
    return config;
  }
};

TEST_P(OffloadTest, AnUpdateHasTheBitsOfStateThatStays) {
  for (const std::int64_t count : {std::int64_t{700}, kOffloadedChunk + 12345}) {
    Updated there(config(), count, false);
    Updated here(config(), count, true);
    for (int number = 1; number <= 3; ++number) {
      there.step(number);
      here.step(number);
    }
    EXPECT_TRUE(at::equal(here.parameters.cpu(), there.parameters.cpu()));
    const auto& states = here.optimizer->state();
    ASSERT_EQ(states.size(), there.optimizer->state().size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      EXPECT_TRUE(states[i].value.is_cpu());
      EXPECT_EQ(states[i].name, there.optimizer->state()[i].name);
      EXPECT_TRUE(at::equal(states[i].value, there.optimizer->state()[i].value.cpu()));
    }
  }
}

TEST_P(OffloadTest, WhatIsWrittenToItsStateCounts) {
  Updated first(config(), 700, true);
  first.step(1);
  Updated second(config(), 700, true);
  second.parameters.copy_(first.parameters);
  for (std::size_t i = 0; i < first.optimizer->state().size(); ++i)
    second.optimizer->state()[i].value.copy_(first.optimizer->state()[i].value);
  first.step(2);
  second.step(2);
  EXPECT_TRUE(at::equal(first.parameters.cpu(), second.parameters.cpu()));
}

TEST_P(OffloadTest, PartsThatAreNotUpdatedStay) {
  Updated whole(config(), 700, true);
  const auto before = whole.parameters.cpu();
  whole.optimizer->step(whole.parameters, at::ones({700}, whole.parameters.options()), 1, 0.1, 1,
                        {{100, 200}});
  const auto changed = whole.parameters.cpu().ne(before);
  EXPECT_EQ(changed.sum().item<std::int64_t>(), 100);
  EXPECT_TRUE(changed.slice(0, 100, 200).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Rules, OffloadTest, testing::Values("sgd", "adam", "adamw"),
                         [](const auto& rule) { return std::string(rule.param); });

}  // namespace
}  // namespace dtrain::optim
