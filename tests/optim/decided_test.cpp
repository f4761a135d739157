// Updates that a device decides on, on the stand-in of a device: what they read lies in its memory.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/fused/rules.hpp"
#include "optim/optimizer.hpp"
#include "support/guarded_device.hpp"

namespace dtrain::optim {
namespace {

constexpr std::int64_t kCount = 40000;  // more than two chunks of a kernel's
constexpr double kScale = 0.5;
const std::vector<Range> kAll = {{0, kCount}};

double rate_of(std::int64_t number) { return 0.01 / static_cast<double>(number); }

/// Parameters on the device, their gradients and their optimizer.
struct Updated {
  Updated(const OptimizerConfig& config, bool with_copy) {
    const auto there = at::TensorOptions().dtype(at::kFloat).device(kGuarded);
    parameters = (at::arange(kCount, at::kFloat) * 0.37).sin().to(kGuarded);
    gradients = at::zeros({kCount}, there);
    // Biases have no decay, and a gap follows them.
    optimizer = make_optimizer(config, kCount, {{0, 30000, 0.1}, {30064, kCount, 0}}, there);
    if (!with_copy) return;
    copy = at::zeros({kCount}, there.dtype(at::kBFloat16));
    EXPECT_TRUE(optimizer->write_copy_to(copy));
  }

  void come_to(std::int64_t number) {
    const at::NoGradGuard no_grad;
    gradients.copy_((at::arange(kCount, at::kFloat) * 0.11 * number).cos());
  }
  void step(std::int64_t number) {
    come_to(number);
    optimizer->step(parameters, gradients, kScale, rate_of(number), number, kAll);
  }
  /// What step() is given, in the device's memory.
  void decide(std::int64_t number, bool applies = true) {
    come_to(number);
    kernels::UpdateDecision decided{.scale = static_cast<float>(kScale),
                                    .applies = applies ? 1 : 0,
                                    .count = number,
                                    .learning_rate = rate_of(number)};
    kernels::round_for_devices(decided);
    at::Tensor here = at::empty({sizeof decided}, at::kByte);
    std::memcpy(here.data_ptr(), &decided, sizeof decided);
    if (decision.defined()) {
      decision.copy_(here);
    } else {
      decision = here.to(kGuarded);
    }
  }
  void step_as_decided() { optimizer->step_as_decided(parameters, gradients, decision, kAll); }

  /// Parameters, state and copy, on the CPU.
  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> found = {parameters.cpu()};
    for (const auto& state : optimizer->state()) found.push_back(state.value.cpu());
    if (copy.defined()) found.push_back(copy.cpu());
    return found;
  }

  at::Tensor parameters, gradients, copy, decision;
  std::unique_ptr<Optimizer> optimizer;
};

void expect_same(const Updated& found, const Updated& wanted) {
  const auto values = found.all();
  const auto expected = wanted.all();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(values[i].equal(expected[i])) << i;
}

struct Kind {
  std::string rule;
  bool with_copy;
};

class DecidedTest : public testing::TestWithParam<Kind> {
 protected:
  static Updated updated() {
    OptimizerConfig config{.name = GetParam().rule};
    if (config.name == "sgd") config.momentum = 0.9;
    return {config, GetParam().with_copy};
  }
};

TEST_P(DecidedTest, AnUpdateHasTheBitsOfOneThatTheCpuGivesItsNumbers) {
  Updated given = updated();
  Updated decided = updated();
  for (std::int64_t number = 1; number <= 3; ++number) {
    given.step(number);
    decided.decide(number);
    decided.step_as_decided();
  }
  expect_same(decided, given);
  if (decided.copy.defined()) {
    const at::Tensor rounded = decided.parameters.cpu().to(at::kBFloat16);
    EXPECT_TRUE(decided.copy.cpu().slice(0, 0, 30000).equal(rounded.slice(0, 0, 30000)));
    EXPECT_TRUE(decided.copy.cpu().slice(0, 30064).equal(rounded.slice(0, 30064)));
    EXPECT_EQ(decided.copy.cpu().slice(0, 30000, 30064).count_nonzero().item<std::int64_t>(), 0) << "the gap";
  }
}

TEST_P(DecidedTest, AStepThatIsLeftOutChangesNothing) {
  Updated left_out = updated();
  left_out.step(1);
  const auto before = left_out.all();
  left_out.decide(2, false);
  left_out.step_as_decided();
  const auto after = left_out.all();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i].equal(before[i])) << i;
}

TEST_P(DecidedTest, ACapturedUpdateReadsTheDecisionAgain) {
  Updated given = updated();
  Updated replayed = updated();
  given.step(1);
  replayed.decide(1);
  replayed.step_as_decided();
  GuardedWork work;
  guarded_capture(&work);
  replayed.step_as_decided();
  guarded_capture(nullptr);
  expect_same(replayed, given);  // a capture does nothing
  for (std::int64_t number = 2; number <= 4; ++number) {
    given.step(number);
    replayed.decide(number);
    for (const auto& operation : work) operation();
  }
  expect_same(replayed, given);
}

INSTANTIATE_TEST_SUITE_P(Rules, DecidedTest,
                         testing::Values(Kind{"sgd", false}, Kind{"adam", false}, Kind{"adamw", false},
                                         Kind{"adam", true}, Kind{"adamw", true}),
                         [](const auto& kind) {
                           return kind.param.rule + (kind.param.with_copy ? "_with_copy" : "");
                         });

TEST(DoubleUpdatesTest, NeitherRateNorScaleIsRoundedToAFloat) {
  constexpr double kThird = 1.0 / 3.7;  // no float
  for (const char* rule : {"sgd", "adam", "adamw"}) {
    const OptimizerConfig config{.name = rule};
    const at::Tensor here = at::arange(40, at::kDouble).sin();
    const at::Tensor there = here.to(kGuarded);
    const auto on_host = make_optimizer(config, 40, {{0, 40, 0.1}}, here.options());
    const auto on_device = make_optimizer(config, 40, {{0, 40, 0.1}}, there.options());
    for (std::int64_t number = 1; number <= 20; ++number) {
      const at::Tensor sums = (at::arange(40, at::kDouble) * number).cos();
      on_host->step(here, sums, kThird, rate_of(number + 2), number, {{0, 40}});
      on_device->step(there, sums.to(kGuarded), kThird, rate_of(number + 2), number, {{0, 40}});
    }
    EXPECT_LE((here - there.cpu()).abs().max().item<double>(), 1e-12) << rule;
  }
}

// Both compute the same update; LibTorch's in another order of operations.
TEST(DecidedUpdatesTest, TheKernelThatWritesTheCopyComputesWhatLibTorchDoes) {
  for (const char* rule : {"adam", "adamw"}) {
    Updated own({.name = rule}, true);
    Updated library({.name = rule}, false);
    for (std::int64_t number = 1; number <= 3; ++number) {
      own.step(number);
      library.step(number);
    }
    EXPECT_TRUE(at::allclose(own.parameters.cpu(), library.parameters.cpu(), 1e-5, 1e-6)) << rule;
  }
}

}  // namespace
}  // namespace dtrain::optim
