// A plug-in: an operator for programs that PyTorch exported, a model of two layers, one of them its own, and
// a loss.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "models/layers/flatten.hpp"
#include "models/layers/linear.hpp"
#include "models/networks/classifier.hpp"
#include "models/options.hpp"
#include "models/plugins/plugin.hpp"
#include "models/shape.hpp"

namespace models = dtrain::models;

namespace {

// ---- an operator: torch.ops.mine.swish(x, beta)
// -------------------------------------------------------------------
at::Tensor swish(const at::Tensor& x, double beta) { return x * at::sigmoid(x * beta); }

// ---- a layer with a parameter
// ---------------------------------------------------------------------------------------
class Scale final : public models::Layer {
 public:
  Scale(const std::string& name, std::int64_t features) : Layer(name) {
    parameters_.push_back({.name = name + ".weight",
                           .value = at::ones({features}).requires_grad_(),
                           .init = {.kind = models::Initialisation::Kind::one}});
  }
  models::Tensors forward(const models::Tensors& inputs, const models::Context& /*context*/) override {
    return {swish(inputs.at(0) * parameters_[0].value, 1.0)};
  }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return inputs;
  }
  models::Cost cost(const std::vector<models::Shape>& inputs) const override {
    const double elements = models::element_count(inputs.at(0));
    return {.flops = 6 * elements,
            .parameter_bytes = 4.0 * parameters_[0].value.numel(),
            .activation_bytes = 12 * elements};
  }
};

// ---- a model
// ----------------------------------------------------------------------------------------------------
std::unique_ptr<models::Model> make(const models::DatasetFacts& facts, const models::ModelOptions& options) {
  models::refuse_unknown("mine_mlp", options, {});
  const auto features = static_cast<std::int64_t>(models::element_count(facts.sample_shape));
  std::vector<std::unique_ptr<models::Layer>> layers;
  layers.push_back(std::make_unique<models::Flatten>("flatten"));
  layers.push_back(std::make_unique<models::Linear>("fc1", features, 16));
  layers.push_back(std::make_unique<Scale>("scale", 16));
  layers.push_back(std::make_unique<models::Linear>("fc2", 16, facts.classes));
  return std::make_unique<models::Classifier>("mine_mlp", std::move(layers), facts.classes);
}

// ---- a loss: the focal loss with gamma 2 (Lin et al., "Focal loss for dense object detection", 2017)
// ----------------
models::LossSums focal(const models::Tensors& outputs, const at::Tensor& targets) {
  const auto chosen = at::log_softmax(outputs.at(0), 1).gather(1, targets.unsqueeze(1)).squeeze(1);
  const auto missing = 1 - chosen.exp();
  return {.loss = -(missing * missing * chosen).sum(), .weight = static_cast<double>(targets.size(0))};
}

void add(models::Additions& additions) {
  additions.models.push_back({.name = "mine_mlp", .recipe = {.options = {{"epochs", "5"}}}, .make = &make});
  additions.losses.push_back({.name = "focal", .sums = &focal});
}

}  // namespace

TORCH_LIBRARY(mine, library) { library.def("swish(Tensor x, float beta) -> Tensor", &swish); }

DTRAIN_PLUGIN(&add)
