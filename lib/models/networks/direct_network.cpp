#include "models/networks/direct_network.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "kernels/perceptron.hpp"
#include "kernels/small_gemm.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/sample_tap.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/convolution/chwn_conv.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/convolution/conv_transpose2d.hpp"
#include "models/layers/convolution/max_pool2d.hpp"
#include "models/layers/flatten.hpp"
#include "models/layers/linear.hpp"
#include "models/layers/small_linear.hpp"
#include "models/networks/classifier.hpp"

namespace dtrain::models {
namespace {

/// In the memory of what comes in: the pass before needs it no more.
class DirectRelu final : public DirectPass {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    output_ = input;
    const auto n = static_cast<std::size_t>(input.numel());
    is_double() ? kernels::rectify(output_.data_ptr<double>(), n)
                : kernels::rectify(output_.data_ptr<float>(), n);
    return output_;
  }
  at::Tensor backward(const at::Tensor& given, bool wanted) override {
    if (!wanted) return {};
    const at::Tensor gradient = is_chwn(output_) ? as_chwn(given) : given;
    const auto n = static_cast<std::size_t>(gradient.numel());
    if (is_double()) {
      kernels::rectify_gradient(gradient.data_ptr<double>(), output_.const_data_ptr<double>(), n);
    } else {
      kernels::rectify_gradient(gradient.data_ptr<float>(), output_.const_data_ptr<float>(), n);
    }
    return gradient;
  }

 private:
  bool is_double() const { return output_.scalar_type() == at::kDouble; }
  at::Tensor output_;
};

class DirectSigmoid final : public DirectPass {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    output_ = input;
    return at::sigmoid_(output_);
  }
  at::Tensor backward(const at::Tensor& gradient, bool wanted) override {
    return wanted ? at::sigmoid_backward(gradient, output_) : at::Tensor();
  }

 private:
  at::Tensor output_;
};

class DirectFlatten final : public DirectPass {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    shape_ = input.sizes().vec();
    return as_nchw(input).reshape({input.size(0), -1});
  }
  at::Tensor backward(const at::Tensor& gradient, bool wanted) override {
    return wanted ? gradient.view(shape_) : at::Tensor();
  }

 private:
  Shape shape_;
};

bool is_trained_on_cpu(const Layer& layer) {
  return std::ranges::all_of(layer.parameters(), [](const Parameter& parameter) {
    return !parameter.frozen && is_full_on_cpu(parameter.value);
  });
}

/// What came before a layer.
struct Before {
  bool trained = false;  // what comes in is no sample, and may be written to
  bool flat = false;     // one row per sample
};

/// Null where there is none.
std::unique_ptr<DirectPass> pass_of(Layer& layer, const Before& before) {
  auto& parameters = layer.parameters();
  if (!is_trained_on_cpu(layer)) return nullptr;
  if (dynamic_cast<const Flatten*>(&layer) != nullptr) return std::make_unique<DirectFlatten>();
  if (dynamic_cast<const Linear*>(&layer) != nullptr)
    return before.flat ? direct_small_linear(parameters.at(0), parameters.at(1)) : nullptr;
  if (const auto* pool = dynamic_cast<const MaxPool2d*>(&layer)) return pool->direct_pass();
  if (const auto* activation = dynamic_cast<const Activation*>(&layer)) {
    // Another activation before it would need what it overwrites.
    if (!before.trained || activation->overwrite() == Overwrite::never) return nullptr;
    if (activation->function() == Function::relu) return std::make_unique<DirectRelu>();
    return activation->function() == Function::sigmoid ? std::make_unique<DirectSigmoid>() : nullptr;
  }
  if (const auto* convolution = dynamic_cast<const Conv2d*>(&layer)) {
    if (convolution->images() == Conv2d::Images::as_they_come) return nullptr;
    return direct_chwn_conv(parameters.at(0), parameters.size() > 1 ? &parameters[1] : nullptr,
                            convolution->geometry());
  }
  if (const auto* convolution = dynamic_cast<const ConvTranspose2d*>(&layer)) {
    if (convolution->images() == Conv2d::Images::as_they_come) return nullptr;
    return direct_chwn_conv_transpose(parameters.at(0), parameters.at(1), convolution->geometry());
  }
  return nullptr;
}

template <class T>
kernels::CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return kernels::cross_entropy(logits.data_ptr<T>(), targets.const_data_ptr<std::int64_t>(),
                                static_cast<std::size_t>(logits.size(0)),
                                static_cast<std::size_t>(logits.size(1)));
}

}  // namespace

std::unique_ptr<DirectNetwork> DirectNetwork::of(const Model& model) {
  if (!kernels::has_small_gemm()) return nullptr;
  std::unique_ptr<DirectNetwork> network(new DirectNetwork(model));
  auto& passes = network->passes_;
  const auto& layers = model.layers();
  Before before;
  for (const auto& layer : layers) {
    auto pass = pass_of(*layer, before);
    if (pass == nullptr) return nullptr;
    before.flat = before.flat || dynamic_cast<const Flatten*>(layer.get()) != nullptr;
    before.trained = before.trained || !layer->parameters().empty();
    if (!before.trained) ++network->first_trained_;
    passes.push_back(std::move(pass));
  }
  if (!before.trained) return nullptr;
  network->classifies_ = dynamic_cast<const Classifier*>(&model) != nullptr;
  if (network->classifies_ && dynamic_cast<const Linear*>(layers.back().get()) == nullptr) return nullptr;
  return network;
}

bool DirectNetwork::fits(std::int64_t samples, std::size_t micro_batches) const {
  const bool are_watched = SampleTap::open() != nullptr;  // the layers
  if (are_watched || at::get_num_threads() != 1) return false;
  return std::ranges::all_of(passes_, [&](const auto& pass) { return pass->fits(samples, micro_batches); });
}

void DirectNetwork::check(const at::Tensor& inputs) {
  if (inputs.sizes() == checked_) return;
  std::vector<Shape> shapes = {inputs.sizes().vec()};
  for (const auto& layer : model_.layers()) shapes = layer->output_shapes(shapes);
  checked_ = inputs.sizes().vec();
}

LossSums DirectNetwork::forward(const at::Tensor& inputs, const at::Tensor& targets) {
  check(inputs);
  at::Tensor flowing = inputs;
  for (const auto& pass : passes_) flowing = pass->forward(flowing);
  return classifies_ ? classified(flowing, targets) : compared(flowing, targets);
}

/// Logits become their own gradient.
LossSums DirectNetwork::classified(const at::Tensor& logits, const at::Tensor& targets) {
  require(targets.dim() == 1 && targets.size(0) == logits.size(0) && targets.scalar_type() == at::kLong,
          "are not one class per sample",
          {.subject = "targets", .advice = "stage the dataset again", .code = ExitCode::data});
  const auto sums = logits.scalar_type() == at::kDouble ? cross_entropy<double>(logits, targets)
                                                        : cross_entropy<float>(logits, targets);
  if (sums.unknown) {
    const auto target = targets[static_cast<std::int64_t>(*sums.unknown)].item<std::int64_t>();
    throw data_error(fmt::format("the target {} is none of {} classes", target, logits.size(1)), "targets",
                     "stage the dataset again");
  }
  gradient_ = logits;
  const auto counted = static_cast<double>(logits.size(0));
  return {.loss = at::scalar_tensor(sums.loss, at::kDouble),
          .correct = at::scalar_tensor(sums.correct, at::kLong),
          .weight = counted,
          .counted = counted};
}

/// The graph of the loss alone.
LossSums DirectNetwork::compared(const at::Tensor& outputs, const at::Tensor& targets) {
  const at::AutoGradMode with_graph(true);
  const at::Tensor leaf = outputs.detach().requires_grad_();
  LossSums sums = model_.loss({leaf}, targets);
  sums.loss.backward();
  sums.loss = sums.loss.detach();
  gradient_ = leaf.grad();
  return sums;
}

void DirectNetwork::backward() {
  at::Tensor flowing = gradient_;
  for (std::size_t i = passes_.size(); i-- > first_trained_;) {
    flowing = passes_[i]->backward(flowing, i > first_trained_);
  }
}

}  // namespace dtrain::models
