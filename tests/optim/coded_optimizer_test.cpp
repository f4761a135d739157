#include "optim/coded_optimizer.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace dtrain::optim {
namespace {

using kernels::Levels;

constexpr std::int64_t kLarge = 5000;  // values of the first parameter; the second one is small
constexpr std::int64_t kBegin = 5056;  // of the second one: what lies between belongs to none
constexpr std::int64_t kCount = 5312;
constexpr double kRate = 0.01;

std::vector<ParameterRange> two_parameters() {
  return {{.begin = 0, .end = kLarge, .weight_decay = 0.1}, {.begin = kBegin, .end = kBegin + 250}};
}

OptimizerConfig in_8_bits(OptimizerConfig config) {
  config.state_bits = 8;
  return config;
}

std::vector<OptimizerConfig> rules() {
  return {{.name = "adam"},
          {.name = "adamw", .beta2 = 0.99},
          {.name = "sgd", .momentum = 0.9},
          {.name = "sgd", .momentum = 0.8, .nesterov = true}};
}

at::Tensor random_numbers(int seed) {
  return at::randn({kCount}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

/// What state in 8 bits has of full numbers: blocks of [begin, end).
void round_blocks(at::Tensor& values, std::int64_t begin, std::int64_t end, Levels levels) {
  auto* const data = values.mutable_data_ptr<float>();
  std::vector<std::uint8_t> codes(kernels::kCodeBlock);
  for (; begin < end; begin += 256) {
    const auto n = static_cast<std::size_t>(std::min<std::int64_t>(256, end - begin));
    const float scale = kernels::encode_block(codes.data(), data + begin, n, levels);
    kernels::decode_block(data + begin, codes.data(), scale, n, levels);
  }
}

Levels levels_of(const std::string& state) {
  return state == "exp_avg_sq" ? Levels::positive : Levels::with_sign;
}

TEST(CodedOptimizerTest, IsTheFullOneWhoseStateIsRoundedAfterEachStep) {
  for (const auto& rule : rules()) {
    at::Tensor ours = random_numbers(1);
    at::Tensor expected = ours.clone();
    const auto coded = make_optimizer(in_8_bits(rule), kCount, two_parameters(), ours.options());
    const auto full = make_optimizer(rule, kCount, two_parameters(), ours.options());
    for (int step = 1; step <= 5; ++step) {
      const auto sums = random_numbers(10 + step);
      coded->step(ours, sums, 0.5, kRate, step);
      full->step(expected, sums, 0.5, kRate, step);
      EXPECT_TRUE(at::equal(ours, expected)) << rule.name << " step " << step;
      for (std::size_t i = 0; i < full->state().size(); ++i) {
        auto state = full->state()[i].value;
        round_blocks(state, 0, kLarge, levels_of(full->state()[i].name));
        EXPECT_EQ(coded->state()[i].name, full->state()[i].name);
        EXPECT_TRUE(at::equal(coded->state()[i].value, state)) << rule.name << " step " << step;
      }
    }
  }
}

TEST(CodedOptimizerTest, TakesAByteAndItsPartOfAScaleForEachValue) {
  const auto adam = make_optimizer(in_8_bits({.name = "adam"}), kCount, two_parameters(), at::kFloat);
  EXPECT_EQ(adam->state_bytes(), 2 * (kLarge + 4 * 20 + 4 * 250));
  adam->state();
  EXPECT_EQ(adam->state_bytes(), 2 * (kLarge + 4 * 20 + 4 * 250)) << "what is shown is not kept";
}

TEST(CodedOptimizerTest, HeldPartsHaveBlocksOfTheirOwn) {
  const std::vector<Range> parts = {{100, 1300}, {4900, 5100}};
  at::Tensor whole = random_numbers(2);
  const auto sums = random_numbers(3);
  const auto of = [&](const at::Tensor& flat) {
    return at::cat({flat.narrow(0, 100, 1200), flat.narrow(0, 4900, 200)});
  };
  at::Tensor held = of(whole);
  const auto rule = in_8_bits({.name = "adam"});
  const auto of_whole = make_optimizer(rule, kCount, two_parameters(), whole.options(), {}, parts);
  const auto of_parts = make_optimizer(rule, kCount, two_parameters(), whole.options(), {}, parts);
  at::Tensor state = make_optimizer({.name = "adam"}, kCount, two_parameters(), at::kFloat)->state()[0].value;
  for (int step = 1; step <= 3; ++step) {
    of_whole->step(whole, sums, 1, kRate, step, parts);
    of_parts->step(held, of(sums), 1, kRate, step, parts);
    EXPECT_TRUE(at::equal(held, of(whole)));
  }
  EXPECT_TRUE(at::equal(of_parts->state()[1].value, of_whole->state()[1].value));
  EXPECT_EQ(of_parts->state()[0].value.numel(), 1400);
  EXPECT_EQ(of_parts->state()[0].value.narrow(0, 1300, 56).count_nonzero().item<std::int64_t>(), 0)
      << "a gap";
  EXPECT_THROW(of_whole->step(whole, sums, 1, kRate, 4, {{100, 300}}), Error) << "a part of blocks";
}

TEST(CodedOptimizerTest, WhatIsWrittenToItsStateCountsWhenItIsTakenOver) {
  const auto first = make_optimizer(in_8_bits({.name = "adam"}), kCount, two_parameters(), at::kFloat);
  at::Tensor parameters = random_numbers(4);
  first->step(parameters, random_numbers(5), 1, kRate, 1);
  const auto second = make_optimizer(in_8_bits({.name = "adam"}), kCount, two_parameters(), at::kFloat);
  for (std::size_t i = 0; i < 2; ++i) {
    at::Tensor target = second->state()[i].value;
    target.copy_(first->state()[i].value);
  }
  second->close_state();
  EXPECT_EQ(second->state()[0].value.count_nonzero().item<std::int64_t>(), 0) << "not before";
  for (std::size_t i = 0; i < 2; ++i) {
    at::Tensor target = second->state()[i].value;
    target.copy_(first->state()[i].value);
  }
  second->take_over_state();
  at::Tensor other = parameters.clone();
  first->step(parameters, random_numbers(6), 1, kRate, 2);
  second->step(other, random_numbers(6), 1, kRate, 2);
  EXPECT_TRUE(at::equal(other, parameters));
}

TEST(CodedOptimizerTest, DoublesAndOtherNumbersOfBitsAreRefused) {
  EXPECT_THROW(make_optimizer(in_8_bits({.name = "adam"}), kCount, two_parameters(), at::kDouble), Error);
  EXPECT_THROW(make_optimizer({.name = "adam", .state_bits = 4}, kCount, two_parameters(), at::kFloat),
               Error);
}

}  // namespace
}  // namespace dtrain::optim
