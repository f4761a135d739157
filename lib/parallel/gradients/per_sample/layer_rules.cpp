#include "parallel/gradients/per_sample/layer_rules.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/bag.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/layers/convolution/conv2d.hpp"
#include "models/layers/convolution/conv_transpose2d.hpp"
#include "models/layers/embedding_bag.hpp"
#include "models/layers/linear.hpp"
#include "parallel/gradients/per_sample/by_sample.hpp"
#include "parallel/gradients/per_sample/convolution_gradients.hpp"

namespace dtrain::parallel {
namespace {

/// Differentiates the layer alone. `tap`: takes down how it uses its parameters; null: it has none.
class PlainRule final : public LayerRule {
 public:
  PlainRule(models::Layer& layer, bool first, models::SampleTap* tap)
      : layer_(layer), first_(first), tap_(tap) {}

  models::Tensors forward(const models::Tensors& inputs, const models::Context& context) override {
    if (first_ && tap_ == nullptr) {
      const at::NoGradGuard no_grad;
      return layer_.run(inputs, context);
    }
    forget();  // below the first layer with parameters nothing is differentiated
    for (const auto& input : inputs) {
      const bool flows = input.is_floating_point() && !first_;
      inputs_.push_back(flows ? input.detach().set_requires_grad(true) : input);
    }
    std::optional<models::SampleTap::Scope> scope;
    if (tap_ != nullptr) scope.emplace(*tap_);
    outputs_ = layer_.run(inputs_, context);
    models::Tensors detached;
    for (const auto& output : outputs_) detached.push_back(output.detach());
    return detached;
  }

  models::Tensors backward(const models::Tensors& gradients, at::Tensor& /*squares*/) override {
    if (outputs_.empty()) return {};
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> given;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      if (!outputs_[i].requires_grad() || !gradients.at(i).defined()) continue;
      outputs.push_back(outputs_[i]);
      given.push_back(gradients[i]);
    }
    if (!outputs.empty()) torch::autograd::backward(outputs, given);
    models::Tensors of_inputs;
    for (const auto& input : inputs_)
      of_inputs.push_back(input.requires_grad() ? input.grad() : at::Tensor());
    forget();
    return of_inputs;
  }

  void add_to(ClippedSum& /*sum*/, const at::Tensor& /*factors*/) override { forget(); }

 private:
  void forget() {
    inputs_.clear();
    outputs_.clear();
  }

  models::Layer& layer_;
  bool first_;
  models::SampleTap* tap_;
  models::Tensors inputs_;
  models::Tensors outputs_;
};

/// Of a bias: the norm of sum over t of out_t, [n, T, elements].
void add_squares_of_sums(const at::Tensor& out, at::Tensor& squares) {
  const auto of_ones = at::scalar_tensor(out.size(1), at::kDouble);
  squares += squares_by_sample(at::sum(out, 1)) + squares_of_rounding(squares_by_sample(out), of_ones);
}

/// [n, in] or [n, T, in].
class LinearRule final : public LayerRule {
 public:
  LinearRule(models::Linear& layer, bool first)
      : weight_(layer.parameters()[0]), bias_(layer.parameters()[1]), first_(first) {}

  models::Tensors forward(const models::Tensors& inputs, const models::Context& context) override {
    const at::NoGradGuard no_grad;
    const models::KernelScope kernels(context.kernels);
    input_ = inputs.at(0);
    return {models::linear_product(input_, weight_, bias_)};
  }

  models::Tensors backward(const models::Tensors& gradients, at::Tensor& squares) override {
    const at::NoGradGuard no_grad;
    gradient_ = gradients.at(0);
    if (input_.dim() == 2) {
      const auto of_output = squares_by_sample(gradient_);
      if (!weight_.frozen) squares += squares_by_sample(input_) * of_output;
      if (!bias_.frozen) squares += of_output;
    } else {
      const auto n = input_.size(0);
      const auto in = input_.reshape({n, -1, input_.size(-1)});
      const auto out = gradient_.reshape({n, -1, gradient_.size(-1)});
      if (!weight_.frozen) add_squares_of_products(in, out, squares);
      if (!bias_.frozen) add_squares_of_sums(out, squares);
    }
    return {first_ ? at::Tensor() : at::matmul(gradient_, weight_.value)};
  }

  void add_to(ClippedSum& sum, const at::Tensor& factors) override {
    const at::NoGradGuard no_grad;
    const auto out = weighted(gradient_, factors).reshape({-1, gradient_.size(-1)});
    if (auto part = sum.part_of(&weight_); part.defined())
      part.addmm_(out.t(), input_.reshape({-1, input_.size(-1)}));
    if (auto part = sum.part_of(&bias_); part.defined()) part.add_(at::sum(out, 0));
    input_.reset();
    gradient_.reset();
  }

 private:
  /// The norm of sum over t of out_t in_t^T: by it, or by the products of all pairs of rows, whichever is
  /// less.
  static void add_squares_of_products(const at::Tensor& in, const at::Tensor& out, at::Tensor& squares) {
    const auto rows = in.size(1);
    if (4 * rows * rows <= in.size(2) * out.size(2)) {  // a product in double costs two
      add_squares_by_pairs(out, in, squares);
    } else {
      squares += squares_by_sample(at::bmm(out.transpose(1, 2), in));
    }
    squares += squares_of_rounding(squares_by_sample(out), squares_by_sample(in));
  }

  models::Parameter& weight_;
  models::Parameter& bias_;
  bool first_;
  at::Tensor input_;
  at::Tensor gradient_;
};

class ConvolutionRule final : public LayerRule {
 public:
  enum class Kind { plain, transposed };
  ConvolutionRule(models::Layer& layer, const models::Conv2d::Geometry& geometry, Kind kind, bool first)
      : geometry_(geometry),
        kind_(kind),
        weight_(layer.parameters()[0]),
        bias_(layer.parameters().size() > 1 ? &layer.parameters()[1] : nullptr),
        first_(first),
        gradients_({.stride = {geometry_.stride, geometry_.stride},
                    .padding = {geometry_.padding, geometry_.padding},
                    .dilation = {1, 1},
                    .output_padding = {0, 0},
                    .transposed = kind == Kind::transposed}) {}

  models::Tensors forward(const models::Tensors& inputs, const models::Context& context) override {
    const at::NoGradGuard no_grad;
    const models::KernelScope kernels(context.kernels);
    input_ = inputs.at(0);
    return {kind_ == Kind::transposed ? models::convolve_transposed(input_, weight_, *bias_, geometry_)
                                      : models::convolve(input_, weight_, bias_, geometry_)};
  }

  models::Tensors backward(const models::Tensors& gradients, at::Tensor& squares) override {
    const at::NoGradGuard no_grad;
    gradient_ = gradients.at(0);
    if (bias_ != nullptr && !bias_->frozen)
      add_squares_of_sums(gradient_.flatten(2).transpose(1, 2), squares);
    if (!weight_.frozen) gradients_.add_squares(input_, gradient_, weight_.value, squares);
    if (first_) return {at::Tensor()};
    return {std::get<0>(gradients_.backward(input_, gradient_, weight_.value, {true, false, false}))};
  }

  void add_to(ClippedSum& sum, const at::Tensor& factors) override {
    const at::NoGradGuard no_grad;
    if (auto part = sum.part_of(&weight_); part.defined())
      part.add_(gradients_.weighted_sum(input_, gradient_, weight_.value, factors));
    if (bias_ != nullptr) {
      if (auto part = sum.part_of(bias_); part.defined())
        part.add_(at::sum(weighted(gradient_, factors), {0, 2, 3}));
    }
    input_.reset();
    gradient_.reset();
    gradients_.forget();
  }

 private:
  models::Conv2d::Geometry geometry_;
  Kind kind_;
  models::Parameter& weight_;
  models::Parameter* bias_;
  bool first_;
  ConvolutionGradients gradients_;
  at::Tensor input_;
  at::Tensor gradient_;
};

/// Means of a table's rows. A row's gradient is the mean's, times how often the text has the word.
class BagRule final : public LayerRule {
 public:
  explicit BagRule(models::EmbeddingBag& layer) : layer_(layer), table_(layer.parameters()[0]) {}

  models::Tensors forward(const models::Tensors& inputs, const models::Context& context) override {
    const at::NoGradGuard no_grad;
    ids_ = layer_.ids_read(inputs.at(0));
    return layer_.run(inputs, context);
  }

  models::Tensors backward(const models::Tensors& gradients, at::Tensor& squares) override {
    const at::NoGradGuard no_grad;
    gradient_ = gradients.at(0);
    if (!table_.frozen) squares += squares_by_sample(gradient_) * squares_of_shares();
    return {at::Tensor()};
  }

  void add_to(ClippedSum& sum, const at::Tensor& factors) override {
    const at::NoGradGuard no_grad;
    if (auto part = sum.part_of(&table_); part.defined()) {
      auto scales = factors.clone();
      scales.div_(lengths_.to(scales.scalar_type()));
      const kernels::Bags bags{ids_.const_data_ptr<std::int32_t>(), static_cast<std::size_t>(ids_.size(0)),
                               static_cast<std::size_t>(ids_.size(1)),
                               static_cast<std::size_t>(ids_.stride(0))};
      const auto gradient = gradient_.contiguous();
      const auto columns = static_cast<std::size_t>(part.size(1));
      if (part.scalar_type() == at::kDouble) {
        kernels::bag_means_backward(part.mutable_data_ptr<double>(), gradient.const_data_ptr<double>(),
                                    scales.const_data_ptr<double>(), bags, columns);
      } else {
        kernels::bag_means_backward(part.mutable_data_ptr<float>(), gradient.const_data_ptr<float>(),
                                    scales.const_data_ptr<float>(), bags, columns);
      }
    }
    ids_.reset();
    gradient_.reset();
  }

 private:
  /// Of each text, the sum over its words of (times it is there / real tokens)^2, double [n].
  at::Tensor squares_of_shares() {
    auto all = at::empty({ids_.size(0)}, at::kDouble);
    lengths_ = at::empty({ids_.size(0)}, at::kDouble);
    met_.resize(static_cast<std::size_t>(table_.value.size(0)), 0);
    for (std::int64_t i = 0; i < ids_.size(0); ++i) {
      const std::span words(ids_.const_data_ptr<std::int32_t>() + i * ids_.size(1),
                            static_cast<std::size_t>(ids_.size(1)));
      std::int64_t squares = 0;
      std::int64_t length = 0;
      for (const auto word : words) {
        if (word == 0) continue;
        squares += 2 * met_[static_cast<std::size_t>(word)]++ + 1;  // (k + 1)^2 - k^2
        ++length;
      }
      for (const auto word : words) met_[static_cast<std::size_t>(word)] = 0;
      const auto real = static_cast<double>(std::max<std::int64_t>(length, 1));
      all.mutable_data_ptr<double>()[i] = static_cast<double>(squares) / (real * real);
      lengths_.mutable_data_ptr<double>()[i] = real;
    }
    return all;
  }

  models::EmbeddingBag& layer_;
  models::Parameter& table_;
  at::Tensor ids_;
  at::Tensor gradient_;
  at::Tensor lengths_;             // double [n], of the texts, at least 1
  std::vector<std::int32_t> met_;  // by word, how often a text has it: zeros between texts
};

}  // namespace

std::unique_ptr<LayerRule> rule_of(models::Layer& layer, bool first, models::SampleTap& tap) {
  if (const auto* tapped = dynamic_cast<const models::SampleTapped*>(&layer))
    return tapped->sample_obstacle().empty() ? std::make_unique<PlainRule>(layer, first, &tap) : nullptr;
  if (layer.parameters().empty() && layer.buffers().empty() && layer.borrowed().empty())
    return std::make_unique<PlainRule>(layer, first, nullptr);
  if (auto* linear = dynamic_cast<models::Linear*>(&layer))
    return std::make_unique<LinearRule>(*linear, first);
  if (auto* conv = dynamic_cast<models::Conv2d*>(&layer))
    return std::make_unique<ConvolutionRule>(layer, conv->geometry(), ConvolutionRule::Kind::plain, first);
  if (auto* conv = dynamic_cast<models::ConvTranspose2d*>(&layer))
    return std::make_unique<ConvolutionRule>(layer, conv->geometry(), ConvolutionRule::Kind::transposed,
                                             first);
  if (auto* bag = dynamic_cast<models::EmbeddingBag*>(&layer))
    return first ? std::make_unique<BagRule>(*bag) : nullptr;
  return nullptr;
}

}  // namespace dtrain::parallel
