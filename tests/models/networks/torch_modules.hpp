#pragma once

#include <torch/torch.h>

#include "models/support.hpp"

namespace dtrain::models {

/// Copies our parameters into a torch::nn module with the same names.
inline void copy_into(torch::nn::Module& module, Model& model) {
  const torch::NoGradGuard no_grad;
  auto theirs = module.named_parameters();
  ASSERT_EQ(theirs.size(), model.parameters().size());
  for (Parameter* parameter : model.parameters()) theirs[parameter->name].copy_(parameter->value);
}

/// Loss sum, outputs and every gradient must agree; `loss` is theirs, computed from `outputs`.
inline void expect_same(Model& model, torch::nn::Module& module, const at::Tensor& outputs,
                        const at::Tensor& their_outputs, const at::Tensor& targets, double tolerance) {
  EXPECT_TRUE(at::allclose(outputs, their_outputs, tolerance, tolerance));
  const LossSums sums = model.loss({outputs}, targets);
  const at::Tensor loss = at::cross_entropy_loss(their_outputs, targets, {}, at::Reduction::Sum);
  EXPECT_NEAR(sums.loss.item<double>(), loss.item<double>(), tolerance * 100);
  sums.loss.backward();
  loss.backward();
  const auto theirs = module.named_parameters();
  for (Parameter* parameter : model.parameters()) {
    EXPECT_TRUE(
        at::allclose(parameter->value.grad(), theirs[parameter->name].grad(), tolerance * 10, tolerance * 10))
        << parameter->name;
  }
}

}  // namespace dtrain::models
