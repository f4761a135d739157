#include "parallel/gradients/per_sample/sample_walk.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "core/error.hpp"
#include "models/borrowed_parameter.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/convolution/conv_transpose2d.hpp"
#include "models/model.hpp"
#include "models/plugins/additions.hpp"
#include "parallel/gradients/per_sample/convolution_gradients.hpp"

namespace dtrain::parallel {
namespace {

/// Null: the layer's parameters do not go through the tap.
const models::SampleTapped* tapped(const models::Layer& layer) {
  return dynamic_cast<const models::SampleTapped*>(&layer);
}

/// A rule of its own knows nothing of other layers' uses.
bool is_borrowed(models::Model& model, const models::Layer& owner) {
  const auto owns = [&](const models::BorrowedParameter* use) {
    return std::ranges::any_of(owner.parameters(),
                               [&](const auto& own) { return &own == &use->parameter(); });
  };
  return std::ranges::any_of(model.layers(),
                             [&](const auto& layer) { return std::ranges::any_of(layer->borrowed(), owns); });
}

/// Layers and losses of others may let samples meet, though they have no parameters.
std::string of_plugins(const models::Model& model) {
  const auto& added = models::additions();
  const bool is_own = std::ranges::find(models::registry(), model.name(), &models::Registration::name) !=
                      models::registry().end();
  if (!added.models.empty() && !is_own) return fmt::format("the model {} may be a plug-in's", model.name());
  return added.losses.empty() ? "" : "a plug-in has losses of its own";
}

}  // namespace

std::optional<std::string> SampleWalk::obstacle(models::Model& model) {
  if (auto why = of_plugins(model); !why.empty()) return why;
  models::SampleTap tap(model.parameters());
  bool first = true;
  for (const auto& layer : model.layers()) {
    if (const auto* own = tapped(*layer)) {
      if (auto why = own->sample_obstacle(); !why.empty()) return why;
    } else if (is_borrowed(model, *layer)) {
      return fmt::format("another layer uses parameters of layer {}", layer->name());
    }
    if (rule_of(*layer, first, tap) == nullptr) return fmt::format("layer {} has no rule", layer->name());
    first = first && layer->parameters().empty();
  }
  return std::nullopt;
}

double SampleWalk::most_elements(const models::Model& model, std::int64_t samples) {
  double of_taps = 0;
  double of_convolutions = 0;
  double works_in = 0;
  for (const auto& layer : model.layers()) {
    const bool convolves = dynamic_cast<const models::Conv2d*>(layer.get()) != nullptr ||
                           dynamic_cast<const models::ConvTranspose2d*>(layer.get()) != nullptr;
    for (const auto& parameter : layer->parameters()) {
      const auto elements = static_cast<double>(parameter.value.numel()) * static_cast<double>(samples);
      if (parameter.frozen) continue;
      if (tapped(*layer) != nullptr) of_taps += elements;
      if (convolves && elements <= ConvolutionGradients::kMostKept) of_convolutions += elements;
    }
    if (convolves) works_in = std::max<double>(works_in, ConvolutionGradients::kMostAtOnce);
    if (tapped(*layer) != nullptr)
      works_in = std::max<double>(works_in, 4 * ParameterUses::kMostAtOnce);  // two, in double
  }
  return std::min<double>(of_taps, ParameterUses::kMostKept) + of_convolutions + works_in;
}

SampleWalk::SampleWalk(models::Model& model)
    : model_(model), tap_(std::make_unique<models::SampleTap>(model.parameters())) {
  bool first = true;
  for (const auto& layer : model.layers()) {
    rules_.push_back(rule_of(*layer, first, *tap_));
    first = first && layer->parameters().empty();
    if (tapped(*layer) == nullptr) continue;
    for (auto& parameter : layer->parameters()) {
      if (!parameter.frozen) tapped_.push_back(&parameter);
    }
  }
}

/// Back through all layers. `squares`: see LayerRule.
void SampleWalk::differentiate(const models::Tensors& outputs, const models::LossSums& loss,
                               at::Tensor& squares) {
  torch::autograd::backward({loss.loss}, {});
  models::Tensors gradients;
  for (const auto& output : outputs)
    gradients.push_back(output.requires_grad() ? output.grad() : at::Tensor());
  const auto is_there = [](const at::Tensor& gradient) { return gradient.defined(); };
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (std::ranges::none_of(gradients, is_there)) break;
    gradients = (*rule)->backward(gradients, squares);
  }
}

/// A use that the tap does not see would leave the gradient of all samples in .grad, and their norms unknown.
void SampleWalk::require_all_taken(const ParameterUses& uses) const {
  for (const auto* parameter : tapped_) {
    require(uses.has(parameter) && !parameter->value.grad().defined(),
            "gets no gradient from each sample, so that nothing bounds what a sample does to it",
            {.subject = fmt::format("parameter {}", parameter->name),
             .advice = "--freeze it, or train without --dp-clip",
             .code = ExitCode::usage});
  }
}

models::LossSums SampleWalk::add(const Samples& samples, const models::Context& context,
                                 const models::TrainingLoss& how, ClippedSum& sum) {
  auto flowing = samples.inputs;
  tap_->forget();
  for (auto* parameter : tapped_) parameter->value.mutable_grad().reset();
  for (const auto& rule : rules_) flowing = rule->forward(flowing, context);
  for (auto& output : flowing) {
    output = output.detach();
    if (output.is_floating_point()) output.set_requires_grad(true);
  }
  auto loss = model_.training_loss(flowing, samples.targets, how);
  auto squares = at::zeros({samples.targets.size(0)}, at::kDouble);
  differentiate(flowing, loss, squares);
  ParameterUses uses(tap_->uses(), samples.targets.size(0));
  tap_->forget();
  require_all_taken(uses);
  uses.add_squares(squares);
  const auto factors = sum.factors(squares);
  for (const auto& rule : rules_) rule->add_to(sum, factors);
  uses.add_to(sum, factors);
  loss.loss = loss.loss.detach();
  return loss;
}

}  // namespace dtrain::parallel
