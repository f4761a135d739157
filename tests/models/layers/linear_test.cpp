#include "models/layers/linear.hpp"

#include <deque>

#include "models/compute/gradient_place.hpp"
#include "models/layers/large_linear.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

/// One micro-batch through a layer that small_linear() does not take, beside at::linear().
struct LargeLinearTest : testing::Test {
  void SetUp() override {
    at::manual_seed(1);
    x = at::randn({3, 800}, at::kDouble).requires_grad_();
    dy = at::randn({3, 700}, at::kDouble);
  }
  void expect_torchs(bool has_bias) {
    const at::Tensor y = has_bias ? linear_product(x, weight(), bias()) : large_linear(x, weight(), nullptr);
    const auto leaf = [](const at::Tensor& value) {
      return value.detach().clone().requires_grad_(value.requires_grad());
    };
    const at::Tensor of_x = leaf(x), of_weight = leaf(weight().value), of_bias = leaf(bias().value);
    const at::Tensor torchs = has_bias ? at::linear(of_x, of_weight, of_bias) : at::linear(of_x, of_weight);
    EXPECT_TRUE(at::equal(y, torchs));
    y.backward(dy);
    torchs.backward(dy);
    const auto expect_same = [](const at::Tensor& found, const at::Tensor& expected) {
      ASSERT_EQ(found.grad().defined(), expected.grad().defined());
      if (!expected.grad().defined()) return;
      EXPECT_LE((found.grad() - expected.grad()).abs().max().item<double>(), 1e-12);
    };
    expect_same(x, of_x);
    expect_same(weight().value, of_weight);
    expect_same(bias().value, of_bias);
  }
  Parameter& weight() { return model->layers()[0]->parameters()[0]; }
  Parameter& bias() { return model->layers()[0]->parameters()[1]; }

  std::unique_ptr<Model> model = model_of(std::make_unique<Linear>("fc", 800, 700), at::kDouble);
  at::Tensor x, dy;
};

TEST_F(LargeLinearTest, GradientsAreWrittenWhereTheyAreCollected) {
  std::deque<GradientPlace> places;
  std::vector<at::Tensor> memory;
  for (Parameter* one : {&weight(), &bias()}) {
    memory.push_back(at::empty_like(one->value.detach()));
    places.emplace_back(*one).offer(memory.back().alias());
  }
  ASSERT_TRUE(fits_large_linear(x, weight(), StepMemory::Otherwise::nothing));
  expect_torchs(true);
  EXPECT_EQ(weight().value.grad().data_ptr(), memory[0].data_ptr());
  EXPECT_EQ(bias().value.grad().data_ptr(), memory[1].data_ptr());
}

TEST_F(LargeLinearTest, NoBias) { expect_torchs(false); }

TEST_F(LargeLinearTest, WhatIsFrozenHasNoGradient) {
  weight().value.requires_grad_(false);
  expect_torchs(true);
  bias().value.requires_grad_(false);
  for (at::Tensor* one : {&x, &bias().value}) one->mutable_grad().reset();
  expect_torchs(true);
}

TEST_F(LargeLinearTest, InputsWithoutAGradient) {
  x.requires_grad_(false);
  expect_torchs(true);
}

}  // namespace
}  // namespace dtrain::models
