#include "optim/optimizer.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "core/error.hpp"

namespace dtrain::optim {
namespace {

constexpr std::int64_t kCount = 1003;
constexpr double kRate = 0.01;
constexpr double kWeight = 64.0;  // samples the gradients are sums over

std::unique_ptr<torch::optim::Optimizer> torchs(const OptimizerConfig& config, const at::Tensor& parameter) {
  if (config.name == "sgd") {
    return std::make_unique<torch::optim::SGD>(std::vector<at::Tensor>{parameter},
                                               torch::optim::SGDOptions(kRate)
                                                   .momentum(config.momentum)
                                                   .weight_decay(config.weight_decay)
                                                   .nesterov(config.nesterov));
  }
  const std::tuple<double, double> betas(config.beta1, config.beta2);
  if (config.name == "adam") {
    return std::make_unique<torch::optim::Adam>(
        std::vector<at::Tensor>{parameter},
        torch::optim::AdamOptions(kRate).betas(betas).eps(config.eps).weight_decay(config.weight_decay));
  }
  return std::make_unique<torch::optim::AdamW>(
      std::vector<at::Tensor>{parameter},
      torch::optim::AdamWOptions(kRate).betas(betas).eps(config.eps).weight_decay(config.weight_decay));
}

TEST(OptimizerTest, TwentyStepsOnSummedGradientsEqualTorchsOnMeans) {
  const std::vector<OptimizerConfig> configs = {
      {.name = "sgd"},
      {.name = "sgd", .momentum = 0.9, .weight_decay = 5e-4},
      {.name = "sgd", .momentum = 0.8, .nesterov = true, .weight_decay = 5e-4},
      {.name = "adam"},
      {.name = "adam", .beta1 = 0.5, .beta2 = 0.9, .eps = 1e-3},
      {.name = "adam", .weight_decay = 0.01},
      {.name = "adamw", .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6},
  };
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const OptimizerConfig& config : configs) {
      torch::manual_seed(4);
      const at::Tensor ours = at::randn({kCount}, type);
      const at::Tensor theirs = ours.clone().requires_grad_();
      const auto optimizer = make_optimizer(config, kCount, ours.options());
      const auto reference = torchs(config, theirs);
      for (std::int64_t step = 1; step <= 20; ++step) {
        const at::Tensor sums = at::randn({kCount}, type) * kWeight;
        const at::Tensor before = sums.clone();
        optimizer->step(ours, sums, 1.0 / kWeight, kRate, step);
        EXPECT_TRUE(at::equal(sums, before));  // gradients are only read
        theirs.mutable_grad() = sums / kWeight;
        reference->step();
      }
      const double tolerance = type == at::kFloat ? 1e-6 : 1e-12;
      EXPECT_LE((ours - theirs.detach()).abs().max().item<double>(), tolerance) << config.name;
    }
  }
}

TEST(OptimizerTest, ACopyInHalfPrecisionIsOfTheNewValues) {
  constexpr std::int64_t kMany = 5003;  // more than one piece
  for (const OptimizerConfig& config : {OptimizerConfig{.name = "sgd", .momentum = 0.9, .weight_decay = 5e-4},
                                        OptimizerConfig{.name = "adam"}}) {
    const at::Tensor values = at::randn({kMany});
    const at::Tensor plain = values.clone();
    const auto optimizer = make_optimizer(config, kMany, values.options());
    const auto reference = make_optimizer(config, kMany, values.options());
    const at::Tensor copy = at::full({kMany}, 7.0, at::kBFloat16);
    EXPECT_FALSE(optimizer->write_copy_to(at::empty({kMany}, at::kHalf)));
    EXPECT_FALSE(optimizer->write_copy_to(at::empty({kMany - 1}, at::kBFloat16)));
    ASSERT_TRUE(optimizer->write_copy_to(copy));
    const at::Tensor sums = at::randn({kMany});
    const std::vector<Range> parts = {{3, 2500}, {2600, kMany}};
    optimizer->step(values, sums, 1.0, kRate, 1, parts);
    reference->step(plain, sums, 1.0, kRate, 1, parts);
    EXPECT_TRUE(values.equal(plain));
    for (const Range& part : parts) {
      const auto of = [&](const at::Tensor& flat) { return flat.narrow(0, part.begin, part.size()); };
      EXPECT_TRUE(of(copy).equal(of(values).to(at::kBFloat16))) << config.name;
    }
    EXPECT_TRUE(copy.narrow(0, 2500, 100).eq(7.0).all().item<bool>()) << "another rank's part was written";
  }
  EXPECT_FALSE(make_optimizer({.name = "sgd"}, 3, at::TensorOptions(at::kDouble))
                   ->write_copy_to(at::empty({3}, at::kBFloat16)));
}

TEST(OptimizerTest, LibTorchsFusedKernelGivesTheSame) {
  const at::Tensor ours = at::randn({kCount}, at::kDouble);
  const at::Tensor theirs = ours.clone();
  const at::Tensor first = at::zeros_like(ours);
  const at::Tensor second = at::zeros_like(ours);
  const at::Tensor steps = at::zeros({}, at::kFloat);
  const auto optimizer = make_optimizer({.name = "adamw", .weight_decay = 0.1}, kCount, ours.options());
  for (std::int64_t step = 1; step <= 5; ++step) {
    const at::Tensor gradients = at::randn({kCount}, at::kDouble);
    optimizer->step(ours, gradients, 1.0, kRate, step);
    steps.fill_(step);
    at::_fused_adamw_({theirs}, {gradients}, {first}, {second}, {}, {steps}, kRate, 0.9, 0.999, 0.1, 1e-8,
                      false, false);
  }
  EXPECT_LE((ours - theirs).abs().max().item<double>(), 1e-12);
}

TEST(OptimizerTest, RangesHaveTheirOwnDecayAndTheRestIsLeftAlone) {
  const at::Tensor parameters = at::ones({10});
  const auto optimizer =
      make_optimizer({.name = "sgd"}, 10, {{0, 4, 0.5}, {6, 10, 0.0}}, parameters.options());
  optimizer->step(parameters, at::zeros({10}), 1.0, 0.1, 1);
  const at::Tensor expected = at::tensor({0.95F, 0.95F, 0.95F, 0.95F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F});
  EXPECT_TRUE(at::allclose(parameters, expected));
}

TEST(OptimizerTest, ASliceIsUpdatedAsWithinTheWhole) {
  const at::Tensor whole = at::randn({100});
  const at::Tensor part = whole.narrow(0, 30, 45).clone();
  const at::Tensor gradients = at::randn({100});
  const OptimizerConfig config{.name = "adam", .weight_decay = 0.01};
  const auto of_whole = make_optimizer(config, 100, whole.options());
  const auto of_part = make_optimizer(config, 45, part.options());
  for (std::int64_t step = 1; step <= 3; ++step) {
    of_whole->step(whole, gradients, 0.5, 0.1, step);
    of_part->step(part, gradients.narrow(0, 30, 45), 0.5, 0.1, step);
  }
  EXPECT_TRUE(at::equal(whole.narrow(0, 30, 45), part));
}

TEST(OptimizerTest, StateIsNamedAsTorchsAndRestoresTheRun) {
  const auto names = [](const OptimizerConfig& config) {
    std::vector<std::string> all;
    const auto optimizer = make_optimizer(config, 4, at::kFloat);
    for (const auto& state : optimizer->state()) all.push_back(state.name);
    return all;
  };
  EXPECT_EQ(names({.name = "sgd"}), std::vector<std::string>{});
  EXPECT_EQ(names({.name = "sgd", .momentum = 0.9}), std::vector<std::string>{"momentum_buffer"});
  EXPECT_EQ(names({.name = "adamw"}), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  const auto first = make_optimizer({.name = "adam"}, 50, at::kFloat);
  const at::Tensor parameters = at::randn({50});
  const at::Tensor gradients = at::randn({50});
  first->step(parameters, gradients, 1.0, 0.1, 1);
  const at::Tensor resumed = parameters.clone();
  const auto second = make_optimizer({.name = "adam"}, 50, at::kFloat);
  for (std::size_t i = 0; i < 2; ++i) {
    const at::Tensor target = second->state()[i].value;
    target.copy_(first->state()[i].value);
  }
  first->step(parameters, gradients, 1.0, 0.1, 2);
  second->step(resumed, gradients, 1.0, 0.1, 2);
  EXPECT_TRUE(at::equal(parameters, resumed));
  EXPECT_EQ(first->state_bytes(), 400);
}

TEST(OptimizerTest, RefusesWhatCannotWork) {
  const auto code = [](const OptimizerConfig& config) {
    try {
      config.validate();
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::success;
  };
  EXPECT_EQ(code({}), ExitCode::success);
  EXPECT_EQ(code({.name = "adagrad"}), ExitCode::usage);
  EXPECT_EQ(code({.name = "sgd", .momentum = 1.0}), ExitCode::usage);
  EXPECT_EQ(code({.weight_decay = -1.0}), ExitCode::usage);
  EXPECT_EQ(code({.name = "sgd", .nesterov = true}), ExitCode::usage);
  EXPECT_EQ(code({.name = "adam", .momentum = 0.9, .nesterov = true}), ExitCode::usage);
  EXPECT_EQ(code({.beta1 = 1.0}), ExitCode::usage);
  EXPECT_EQ(code({.beta2 = std::nan("")}), ExitCode::usage);
  EXPECT_EQ(code({.eps = 0.0}), ExitCode::usage);
  EXPECT_EQ(code({.offload = "parameters"}), ExitCode::usage);
  EXPECT_THROW(make_optimizer({}, 10, {{0, 6, 0.0}, {5, 10, 0.0}}, at::kFloat), Error);
  EXPECT_THROW(make_optimizer({}, 10, {{0, 11, 0.0}}, at::kFloat), Error);
  const auto optimizer = make_optimizer({}, 10, at::kFloat);
  EXPECT_THROW(optimizer->step(at::zeros({9}), at::zeros({10}), 1.0, 0.1, 1), Error);
  EXPECT_THROW(optimizer->step(at::zeros({10}), at::zeros({10}, at::kDouble), 1.0, 0.1, 1), Error);
}

TEST(OptimizerTest, HasStateForThePartsItIsMadeForAlone) {
  const std::vector<Range> parts = {{0, 100}, {100, 100}, {640, 700}, {990, kCount}};
  for (const OptimizerConfig& config :
       {OptimizerConfig{.name = "sgd", .momentum = 0.9}, OptimizerConfig{.name = "adam"}}) {
    torch::manual_seed(4);
    const at::Tensor whole = at::randn({kCount}, at::kFloat);
    const at::Tensor shard = whole.clone();
    const at::Tensor before = whole.clone();
    const std::vector<ParameterRange> ranges = {{.begin = 0, .end = 650}, {.begin = 650, .end = kCount}};
    const auto usual = make_optimizer(config, kCount, ranges, whole.options());
    const auto held = make_optimizer(config, kCount, ranges, whole.options(), {}, parts);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const at::Tensor sums = at::randn({kCount}, at::kFloat);
      usual->step(whole, sums, 1.0, kRate, step);
      std::vector<at::Tensor> of_parts;
      for (const Range& part : parts) of_parts.push_back(sums.narrow(0, part.begin, part.size()));
      held->step(shard, step == 2 ? at::cat(of_parts) : sums, 1.0, kRate, step, parts);
    }
    std::int64_t place = 0;
    for (const Range& part : parts) {
      const auto of = [&part](const at::Tensor& flat) { return flat.narrow(0, part.begin, part.size()); };
      EXPECT_TRUE(at::equal(of(shard), of(whole)));
      for (std::size_t i = 0; i < usual->state().size(); ++i) {
        EXPECT_TRUE(
            at::equal(held->state()[i].value.narrow(0, place, part.size()), of(usual->state()[i].value)));
      }
      place += part.size();
    }
    EXPECT_EQ(held->state().front().value.numel(), place);
    EXPECT_TRUE(at::equal(shard.narrow(0, 700, 290), before.narrow(0, 700, 290)));
    EXPECT_THROW(held->step(shard, before, 1.0, kRate, 4), Error);  // of the rest it has no state
    EXPECT_THROW(held->step(shard, before.narrow(0, 0, 171), 1.0, kRate, 4, parts), Error);  // they have 173
  }
  EXPECT_THROW(make_optimizer({.name = "adam"}, 10, {{.begin = 0, .end = 10}}, at::kFloat, {},
                              std::vector<Range>{{4, 8}, {2, 6}}),
               Error);
}

}  // namespace
}  // namespace dtrain::optim
