#include "models/networks/direct_perceptron.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "kernels/perceptron.hpp"
#include "kernels/small_gemm.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/product_factors.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/flatten.hpp"
#include "models/layers/linear.hpp"
#include "models/networks/classifier.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

std::size_t size_along(const at::Tensor& tensor, std::int64_t dim) {
  return static_cast<std::size_t>(tensor.size(dim));
}

}  // namespace

std::unique_ptr<DirectPerceptron> DirectPerceptron::of(const Model& model) {
  const auto& layers = model.layers();
  const bool begins = !layers.empty() && dynamic_cast<const Flatten*>(layers.front().get()) != nullptr;
  if (!begins || dynamic_cast<const Classifier*>(&model) == nullptr || !kernels::has_small_gemm())
    return nullptr;
  std::vector<Product> products;
  for (std::size_t i = 1; i < layers.size(); ++i) {
    if (dynamic_cast<const Linear*>(layers[i].get()) != nullptr) {
      const auto& parameters = layers[i]->parameters();
      if (!is_full_on_cpu(parameters[0].value)) return nullptr;
      products.push_back({&parameters[0], &parameters[1], false});
    } else if (const auto* activation = dynamic_cast<const Activation*>(layers[i].get())) {
      if (activation->function() != Function::relu || products.empty()) return nullptr;
      products.back().rectified = true;
    } else {
      return nullptr;
    }
  }
  if (products.empty() || products.back().rectified) return nullptr;
  return std::unique_ptr<DirectPerceptron>(new DirectPerceptron(std::move(products)));
}

bool DirectPerceptron::fits() const {
  return std::ranges::all_of(products_,
                             [](const Product& product) { return product.weight->factors() != nullptr; });
}

LossSums DirectPerceptron::forward(const at::Tensor& inputs, const at::Tensor& targets) {
  const std::int64_t n = inputs.size(0);
  inputs_ = {inputs.reshape({n, -1}).contiguous()};
  const auto features = products_.front().weight->value.size(1);
  if (inputs_.front().size(1) != features)
    throw input_error("flatten", fmt::format("[n, {}]", features), inputs.sizes());
  require(targets.dim() == 1 && targets.size(0) == n && targets.scalar_type() == at::kLong,
          "are not one class per sample", {.subject = "targets", .code = ExitCode::data});
  return inputs_.front().scalar_type() == at::kDouble ? forward_as<double>(targets)
                                                      : forward_as<float>(targets);
}

template <class T>
LossSums DirectPerceptron::forward_as(const at::Tensor& targets) {
  for (const Product& product : products_) {
    const at::Tensor& x = inputs_.back();
    const at::Tensor& weight = product.weight->value;
    const at::Tensor& bias = product.bias->value;
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    T* const out = y.data_ptr<T>();
    kernels::multiply_transposed(out, x.const_data_ptr<T>(), weight.const_data_ptr<T>(),
                                 bias.const_data_ptr<T>(),
                                 {size_along(x, 0), size_along(y, 1), size_along(x, 1)});
    if (product.rectified) kernels::rectify(out, static_cast<std::size_t>(y.numel()));
    inputs_.push_back(std::move(y));
  }
  at::Tensor& logits = inputs_.back();
  const auto* const wanted = targets.const_data_ptr<std::int64_t>();
  const auto sums =
      kernels::cross_entropy(logits.data_ptr<T>(), wanted, size_along(logits, 0), size_along(logits, 1));
  if (sums.unknown) {
    throw data_error(
        fmt::format("the target {} is none of {} classes", wanted[*sums.unknown], logits.size(1)), "targets",
        "stage the dataset again");
  }
  const auto counted = static_cast<double>(logits.size(0));
  return {.loss = at::scalar_tensor(sums.loss, at::kDouble),
          .correct = at::scalar_tensor(sums.correct, at::kLong),
          .weight = counted,
          .counted = counted};
}

void DirectPerceptron::backward() {
  inputs_.back().scalar_type() == at::kDouble ? backward_as<double>() : backward_as<float>();
  inputs_.clear();
}

template <class T>
void DirectPerceptron::backward_as() {
  at::Tensor gradient = inputs_.back();  // of what comes out
  for (std::size_t i = products_.size(); i-- > 0;) {
    const at::Tensor& x = inputs_[i];
    const at::Tensor& weight = products_[i].weight->value;
    *products_[i].weight->factors() = {x, gradient};
    if (i == 0) break;
    at::Tensor of_input = at::empty(x.sizes(), x.options());
    T* const out = of_input.data_ptr<T>();
    kernels::multiply(out, gradient.const_data_ptr<T>(), size_along(weight, 0), 1, weight.const_data_ptr<T>(),
                      {size_along(gradient, 0), size_along(weight, 1), size_along(weight, 0)});
    if (products_[i - 1].rectified)
      kernels::rectify_gradient(out, x.const_data_ptr<T>(), static_cast<std::size_t>(x.numel()));
    gradient = std::move(of_input);
  }
}

}  // namespace dtrain::models
