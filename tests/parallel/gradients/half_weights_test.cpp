#include "parallel/gradients/half_weights.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "models/compute/gradient_place.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/product_weight.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

bool is_current(const FlatParameters& parameters, HalfWeights& halves) {
  return halves.values().equal(parameters.values().to(at::kBFloat16));
}

TEST(HalfWeightsTest, EachParameterHasItsPartWhileTheyLive) {
  auto model = small_model();
  model->initialise(1);
  FlatParameters parameters(*model, at::kFloat);
  {
    HalfWeights halves(parameters, at::zeros({parameters.size()}, at::kBFloat16));
    halves.begin_step();
    EXPECT_TRUE(is_current(parameters, halves));
    for (const auto* parameter : model->parameters()) {
      EXPECT_TRUE(parameter->half.equal(parameter->value.to(at::kBFloat16))) << parameter->name;
      EXPECT_TRUE(parameter->half.is_alias_of(halves.values()));
    }
  }
  for (const auto* parameter : model->parameters()) EXPECT_FALSE(parameter->half.defined());
}

TEST(HalfWeightsTest, AStepBeginsWithTheParametersAsTheyAre) {
  auto model = small_model();
  FlatParameters parameters(*model, at::kFloat);
  HalfWeights halves(parameters, at::zeros({parameters.size()}, at::kBFloat16));
  parameters.values().fill_(1.25);
  halves.begin_step();
  EXPECT_TRUE(is_current(parameters, halves));
  std::fill_n(parameters.values().data_ptr<float>(), 3, 7.0F);  // by hand, which LibTorch does not see
  halves.begin_step();
  EXPECT_TRUE(is_current(parameters, halves));
  parameters.values().fill_(2.0);
  halves.values().fill_(3.0);
  halves.written();
  halves.begin_step();
  EXPECT_EQ(halves.values()[0].item<float>(), 3.0F) << "what an optimizer wrote is made again";
  halves.written();
  parameters.values().fill_(4.0);  // a checkpoint was loaded since
  halves.begin_step();
  EXPECT_TRUE(is_current(parameters, halves));
  halves.written();
  std::fill_n(parameters.values().data_ptr<float>(), 3, 8.0F);  // another rank of the node has rolled back
  halves.forget();
  halves.begin_step();
  EXPECT_TRUE(is_current(parameters, halves));
  halves.written();
  halves.begin_step();
  halves.begin_step();  // of a step without an update
  EXPECT_TRUE(is_current(parameters, halves));
}

TEST(HalfWeightsTest, ProductsReadTheCopyAndTheGradientGoesToTheParameter) {
  models::Parameter parameter{.name = "w", .value = at::randn({4, 3}).requires_grad_()};
  const at::Tensor x = at::randn({2, 3});
  const auto product = [&] { return at::linear(x, models::product_weight(parameter.value, parameter)); };
  const models::KernelScope own(models::Kernels::own);
  const models::ProductScope half(at::kBFloat16);
  const at::Tensor converted = product();
  converted.sum().backward();
  const at::Tensor wanted = parameter.value.grad().clone();
  parameter.value.mutable_grad().reset();

  parameter.half = parameter.value.detach().to(at::kBFloat16);
  EXPECT_EQ(models::product_weight(parameter.value, parameter).scalar_type(), at::kBFloat16);
  const at::Tensor copied = product();
  EXPECT_TRUE(copied.equal(converted));
  copied.sum().backward();
  EXPECT_EQ(parameter.value.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(parameter.value.grad().equal(wanted));
  {  // where a collector offers memory, the gradient is written there; another leaf's is not
    models::GradientPlace place(parameter);
    const at::Tensor memory = at::zeros({4, 3});
    place.offer(memory.alias());
    parameter.value.mutable_grad().reset();
    const at::Tensor leaf = parameter.value.detach().requires_grad_();
    at::linear(x, models::product_weight(leaf, parameter)).sum().backward();
    EXPECT_TRUE(leaf.grad().equal(wanted));
    EXPECT_EQ(memory.abs().max().item<float>(), 0.0F);
    product().sum().backward();
    EXPECT_EQ(parameter.value.grad().data_ptr(), memory.data_ptr());
    EXPECT_TRUE(memory.equal(wanted));
  }
  {
    const at::NoGradGuard evaluation;
    EXPECT_TRUE(models::product_weight(parameter.value, parameter).is_same(parameter.value));
  }
  const models::KernelScope library(models::Kernels::libtorch);
  EXPECT_TRUE(models::product_weight(parameter.value, parameter).is_same(parameter.value));
}

}  // namespace
}  // namespace dtrain::parallel
