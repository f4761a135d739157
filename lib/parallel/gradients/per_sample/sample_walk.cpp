#include "parallel/gradients/per_sample/sample_walk.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace dtrain::parallel {

std::optional<std::string> SampleWalk::obstacle(models::Model& model) {
  bool first = true;
  for (const auto& layer : model.layers()) {
    if (rule_of(*layer, first) == nullptr) return fmt::format("layer {} has no rule", layer->name());
    first = first && layer->parameters().empty();
  }
  return std::nullopt;
}

SampleWalk::SampleWalk(models::Model& model) : model_(model) {
  bool first = true;
  for (const auto& layer : model.layers()) {
    rules_.push_back(rule_of(*layer, first));
    first = first && layer->parameters().empty();
  }
}

models::LossSums SampleWalk::add(const Samples& samples, const models::Context& context,
                                 const models::TrainingLoss& how, ClippedSum& sum) {
  auto flowing = samples.inputs;
  for (const auto& rule : rules_) flowing = rule->forward(flowing, context);
  for (auto& output : flowing) output = output.detach().set_requires_grad(true);
  auto loss = model_.training_loss(flowing, samples.targets, how);
  torch::autograd::backward({loss.loss}, {});
  models::Tensors gradients;
  for (const auto& output : flowing) gradients.push_back(output.grad());
  auto squares = at::zeros({samples.targets.size(0)}, at::kDouble);
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (gradients.empty()) break;
    gradients = (*rule)->backward(gradients, squares);
    if (!gradients.empty() && !gradients.front().defined()) gradients.clear();
  }
  const auto factors = sum.factors(squares);
  for (const auto& rule : rules_) rule->add_to(sum, factors);
  loss.loss = loss.loss.detach();
  return loss;
}

}  // namespace dtrain::parallel
