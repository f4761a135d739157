#include "models/gpt_layers.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/format.h>

#include <cmath>

#include "models/dropout.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

constexpr double kDeviation = 0.02;
constexpr double kEps = 1e-5;
constexpr Initialisation kWeight{Initialisation::Kind::normal, kDeviation};
constexpr Initialisation kZero{Initialisation::Kind::zero};
constexpr Initialisation kOne{Initialisation::Kind::one};

Parameter parameter(const GptSizes& sizes, const std::string& name, const Shape& shape, Initialisation init,
                    Slicing slicing = Slicing::none) {
  const auto device = sizes.allocate ? at::kCPU : at::kMeta;
  return {.name = name,
          .value = at::empty(shape, at::TensorOptions().device(device)).requires_grad_(),
          .init = init,
          .slicing = slicing};
}

/// What ends a residual branch starts smaller, so that the sum over all branches keeps its size.
Initialisation residual(const GptSizes& sizes) {
  return {Initialisation::Kind::normal, kDeviation / std::sqrt(2.0 * static_cast<double>(sizes.layers))};
}

at::Tensor normed(const at::Tensor& input, const std::vector<Parameter>& parameters) {
  return at::layer_norm(input, {input.size(-1)}, parameters[0].value, parameters[1].value, kEps);
}

at::Tensor dropped(const at::Tensor& input, const GptSizes& sizes, const std::string& name,
                   const Context& context) {
  if (context.mode == Mode::evaluation || sizes.dropout == 0.0) return input;
  return dropout(input, sizes.dropout, context.dropout_key(kernels::stream_of(name)));
}

struct Extents {
  double samples;
  double length;
  double tokens;
  double width;
  double bytes;
};

Extents extents_of(const Shape& shape, const GptSizes& sizes) {
  const auto n = static_cast<double>(shape.at(0));
  const auto t = static_cast<double>(shape.at(1));
  return {n, t, n * t, static_cast<double>(sizes.width), 4.0};
}

}  // namespace

double GptSizes::parameters() const {
  const auto c = static_cast<double>(width);
  const double per_layer = 12.0 * c * c + 13.0 * c;
  return per_layer * static_cast<double>(layers) + 2.0 * c + c * static_cast<double>(vocabulary + block);
}

GptEmbedding::GptEmbedding(const GptSizes& sizes) : Layer("transformer.embedding"), sizes_(sizes) {
  parameters_.push_back(parameter(sizes, "transformer.wte.weight", {sizes.vocabulary, sizes.width}, kWeight,
                                  Slicing::vocabulary));
  parameters_.push_back(parameter(sizes, "transformer.wpe.weight", {sizes.block, sizes.width}, kWeight));
}

at::Tensor GptEmbedding::embed(const at::Tensor& ids, std::int64_t before) const {
  if (ids.dim() != 2 || before + ids.size(1) > sizes_.block) {
    throw input_error(name(), fmt::format("ids [n, T] with T of at most {}", sizes_.block), ids.sizes());
  }
  const at::Tensor positions = parameters_[1].value.narrow(0, before, ids.size(1));
  return at::embedding(parameters_[0].value, ids) + positions;
}

Tensors GptEmbedding::forward(const Tensors& inputs, const Context& context) {
  return {dropped(embed(inputs.at(0), 0), sizes_, name(), context)};
}

std::vector<Shape> GptEmbedding::output_shapes(const std::vector<Shape>& inputs) const {
  Shape shape = inputs.at(0);
  if (shape.size() != 2 || shape[1] > sizes_.block) {
    throw input_error(name(), fmt::format("ids [n, T] with T of at most {}", sizes_.block), shape);
  }
  shape.push_back(sizes_.width);
  return {shape};
}

Cost GptEmbedding::cost(const std::vector<Shape>& inputs) const {
  const auto e = extents_of(inputs.at(0), sizes_);
  return {.flops = e.tokens * e.width,
          .parameter_bytes = static_cast<double>(sizes_.vocabulary + sizes_.block) * e.width * e.bytes,
          .activation_bytes = e.tokens * 4.0};
}

GptAttention::GptAttention(const GptSizes& sizes, std::int64_t index)
    : Layer(fmt::format("transformer.h.{}.attn", index)), sizes_(sizes) {
  const std::int64_t width = sizes.width;
  const std::string norm = fmt::format("transformer.h.{}.ln_1", index);
  parameters_.push_back(parameter(sizes, norm + ".weight", {width}, kOne));
  parameters_.push_back(parameter(sizes, norm + ".bias", {width}, kZero));
  parameters_.push_back(
      parameter(sizes, name() + ".c_attn.weight", {3 * width, width}, kWeight, Slicing::heads));
  parameters_.push_back(parameter(sizes, name() + ".c_attn.bias", {3 * width}, kZero, Slicing::heads));
  parameters_.push_back(
      parameter(sizes, name() + ".c_proj.weight", {width, width}, residual(sizes), Slicing::row));
  parameters_.push_back(parameter(sizes, name() + ".c_proj.bias", {width}, kZero));
}

at::Tensor GptAttention::attend(const at::Tensor& input, KeysValues* cache) const {
  const auto n = input.size(0);
  const auto length = input.size(1);
  const at::Tensor joined =
      at::linear(normed(input, parameters_), parameters_[2].value, parameters_[3].value);
  const auto part = [&](std::int64_t index) {
    return joined.narrow(2, index * sizes_.width, sizes_.width)
        .view({n, length, sizes_.heads, sizes_.width / sizes_.heads})
        .transpose(1, 2);
  };
  at::Tensor keys = part(1);
  at::Tensor values = part(2);
  bool causal = true;
  if (cache != nullptr) {
    causal = !cache->keys.defined();  // later tokens come one by one and see all before
    if (!causal) {
      keys = at::cat({cache->keys, keys}, 2);
      values = at::cat({cache->values, values}, 2);
    }
    *cache = {keys, values};
  }
  const at::Tensor mixed = at::scaled_dot_product_attention(part(0), keys, values, {}, 0.0, causal);
  return at::linear(mixed.transpose(1, 2).reshape({n, length, sizes_.width}), parameters_[4].value,
                    parameters_[5].value);
}

Tensors GptAttention::forward(const Tensors& inputs, const Context& context) {
  const at::Tensor& input = inputs.at(0);
  return {input + dropped(attend(input, nullptr), sizes_, name(), context)};
}

at::Tensor GptAttention::forward_cached(const at::Tensor& input, KeysValues& cache) const {
  return input + attend(input, &cache);
}

Cost GptAttention::cost(const std::vector<Shape>& inputs) const {
  const auto e = extents_of(inputs.at(0), sizes_);
  const double products = 8.0 * e.tokens * e.width * e.width;
  const double pairs = e.samples * e.length * (e.length + 1.0) / 2.0;  // causal: half of the square
  return {.flops = products + 4.0 * pairs * e.width,
          .parameter_bytes = (4.0 * e.width * e.width + 6.0 * e.width) * e.bytes,
          .activation_bytes = 7.0 * e.tokens * e.width * e.bytes};
}

GptMlp::GptMlp(const GptSizes& sizes, std::int64_t index)
    : Layer(fmt::format("transformer.h.{}.mlp", index)), sizes_(sizes) {
  const std::int64_t width = sizes.width;
  const std::string norm = fmt::format("transformer.h.{}.ln_2", index);
  parameters_.push_back(parameter(sizes, norm + ".weight", {width}, kOne));
  parameters_.push_back(parameter(sizes, norm + ".bias", {width}, kZero));
  parameters_.push_back(
      parameter(sizes, name() + ".c_fc.weight", {4 * width, width}, kWeight, Slicing::column));
  parameters_.push_back(parameter(sizes, name() + ".c_fc.bias", {4 * width}, kZero, Slicing::column));
  parameters_.push_back(
      parameter(sizes, name() + ".c_proj.weight", {width, 4 * width}, residual(sizes), Slicing::row));
  parameters_.push_back(parameter(sizes, name() + ".c_proj.bias", {width}, kZero));
}

Tensors GptMlp::forward(const Tensors& inputs, const Context& context) {
  const at::Tensor& input = inputs.at(0);
  const at::Tensor inner =
      at::gelu(at::linear(normed(input, parameters_), parameters_[2].value, parameters_[3].value));
  const at::Tensor outer = at::linear(inner, parameters_[4].value, parameters_[5].value);
  return {input + dropped(outer, sizes_, name(), context)};
}

Cost GptMlp::cost(const std::vector<Shape>& inputs) const {
  const auto e = extents_of(inputs.at(0), sizes_);
  return {.flops = 16.0 * e.tokens * e.width * e.width,
          .parameter_bytes = (8.0 * e.width * e.width + 7.0 * e.width) * e.bytes,
          .activation_bytes = 10.0 * e.tokens * e.width * e.bytes};
}

GptHead::GptHead(const GptSizes& sizes, GptEmbedding& embedding)
    : Layer("lm_head"), sizes_(sizes), embedding_(embedding) {
  parameters_.push_back(parameter(sizes, "transformer.ln_f.weight", {sizes.width}, kOne));
  parameters_.push_back(parameter(sizes, "transformer.ln_f.bias", {sizes.width}, kZero));
}

Tensors GptHead::forward(const Tensors& inputs, const Context& /*context*/) {
  return {at::linear(normed(inputs.at(0), parameters_), embedding_.parameters()[0].value)};
}

std::vector<Shape> GptHead::output_shapes(const std::vector<Shape>& inputs) const {
  Shape shape = inputs.at(0);
  shape.back() = sizes_.vocabulary;
  return {shape};
}

Cost GptHead::cost(const std::vector<Shape>& inputs) const {
  const auto e = extents_of(inputs.at(0), sizes_);
  const auto words = static_cast<double>(sizes_.vocabulary);
  return {.flops = 2.0 * e.tokens * e.width * words,
          .parameter_bytes = 2.0 * e.width * e.bytes,
          .activation_bytes = e.tokens * (2.0 * e.width + words) * e.bytes};
}

}  // namespace dtrain::models
