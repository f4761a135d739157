#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "models/networks/classifier.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/step/step.hpp"

namespace dtrain::parallel {

using Layers = std::vector<std::unique_ptr<models::Layer>>;

/// A layer without a rule: its parameter multiplies.
class Scale final : public models::Layer {
 public:
  explicit Scale(std::int64_t width) : Layer("scale") {
    parameters_.push_back(
        {"scale.weight", at::empty({width}).requires_grad_(), {models::Initialisation::Kind::uniform, 1.0}});
  }
  models::Tensors forward(const models::Tensors& inputs, const models::Context&) override {
    return {inputs.at(0) * parameters_[0].value};
  }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return inputs;
  }
  models::Cost cost(const std::vector<models::Shape>&) const override { return {}; }
};

inline std::unique_ptr<models::Model> classifier_of(Layers layers, std::int64_t classes) {
  auto model = std::make_unique<models::Classifier>("test", std::move(layers), classes);
  model->initialise(5);
  return model;
}

inline at::Tensor waves(models::Shape shape) {
  std::int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  return at::sin(at::arange(count, at::kFloat) * 0.7).reshape(shape) * 2;
}

inline models::LossSums run_through(models::Model& model, const Samples& samples,
                                    const models::Context& context) {
  auto flowing = samples.inputs;
  for (const auto& layer : model.layers()) flowing = layer->run(flowing, context);
  return model.training_loss(flowing, samples.targets, {});
}

inline Samples one_of(const Samples& samples, std::int64_t i) {
  Samples one{.inputs = {}, .targets = samples.targets.narrow(0, i, 1)};
  for (const auto& input : samples.inputs) one.inputs.push_back(input.narrow(0, i, 1));
  return one;
}

/// By one backward pass for each sample, in plain words. Also the least and the greatest norm.
struct Plain {
  at::Tensor sum;
  double least = 1e30;
  double most = 0;
};
inline Plain plain_sum(models::Model& model, FlatParameters& parameters, const Samples& samples,
                       double clip) {
  Plain all{.sum = at::zeros_like(parameters.values())};
  for (std::int64_t i = 0; i < samples.targets.size(0); ++i) {
    for (const auto& entry : parameters.entries()) entry.parameter->value.mutable_grad().reset();
    run_through(model, one_of(samples, i), {}).loss.backward();
    const at::NoGradGuard no_grad;
    auto flat = at::zeros_like(all.sum);
    for (const auto& entry : parameters.entries())
      FlatParameters::view(flat, entry).copy_(entry.parameter->value.grad());
    const double norm = flat.norm().item<double>();
    all.sum += flat * std::min(1.0, clip / norm);
    all.least = std::min(all.least, norm);
    all.most = std::max(all.most, norm);
  }
  return all;
}

}  // namespace dtrain::parallel
