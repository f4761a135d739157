#include "models/gpt_layers.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "models/dropout.hpp"
#include "models/shape.hpp"
#include "models/slices.hpp"
#include "models/tensor_group.hpp"

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

at::Tensor entered(const at::Tensor& input, TensorGroup* group) {
  return group != nullptr ? group->enter(input) : input;
}

/// x W^T + b of the whole, of whose inputs and W's columns this rank may hold a part.
at::Tensor projected(const at::Tensor& input, const Parameter& weight, const Parameter& bias,
                     TensorGroup* group) {
  if (group == nullptr) return at::linear(input, weight.value, bias.value);
  return group->leave(at::linear(input, weight.value)) + bias.value;
}

/// What of a layer's elements this rank holds.
double share_of(const Parameter& parameter) {
  if (parameter.slice == nullptr) return 1.0;
  return static_cast<double>(parameter.slice->part.size()) /
         static_cast<double>(sliced_extent(*parameter.slice));
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

/// What flows between two layers, where it is summed.
double summed(const Extents& e, const TensorGroup* group) {
  return group != nullptr ? e.tokens * e.width * e.bytes : 0.0;
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
  return words(ids) + parameters_[1].value.narrow(0, before, ids.size(1));
}

at::Tensor GptEmbedding::words(const at::Tensor& ids) const {
  const Parameter& table = parameters_[0];
  if (group_ == nullptr) return at::embedding(table.value, ids);
  const at::Tensor rows = ids - table.slice->part.begin;
  const at::Tensor elsewhere = rows.lt(0).logical_or(rows.ge(table.slice->part.size()));
  const at::Tensor held = at::embedding(table.value, rows.masked_fill(elsewhere, 0));
  return group_->leave(held.masked_fill(elsewhere.unsqueeze(-1), 0));
}

Flow GptEmbedding::slice(TensorGroup& group, const Flow& flow) {
  group_ = &group;
  hold_slice(parameters_[0], 0, part_of(sizes_.vocabulary, group.rank(), group.size()));
  return flow;
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
          .parameter_bytes = (static_cast<double>(sizes_.vocabulary) * share_of(parameters_[0]) +
                              static_cast<double>(sizes_.block)) *
                             e.width * e.bytes,
          .activation_bytes = e.tokens * e.width * e.bytes,
          .left_bytes = summed(e, group_)};
}

GptAttention::GptAttention(const GptSizes& sizes, std::int64_t index)
    : Layer(fmt::format("transformer.h.{}.attn", index)), sizes_(sizes), heads_(sizes.heads) {
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
  const auto head_width = sizes_.width / sizes_.heads;
  const auto width = heads_ * head_width;
  const at::Tensor joined =
      at::linear(entered(normed(input, parameters_), group_), parameters_[2].value, parameters_[3].value);
  const auto part = [&](std::int64_t index) {
    return joined.narrow(2, index * width, width).view({n, length, heads_, head_width}).transpose(1, 2);
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
  return projected(mixed.transpose(1, 2).reshape({n, length, width}), parameters_[4], parameters_[5], group_);
}

Flow GptAttention::slice(TensorGroup& group, const Flow& flow) {
  if (sizes_.heads % group.size() != 0) {
    std::vector<std::int64_t> fitting;
    for (std::int64_t n = 1; n <= sizes_.heads; ++n) {
      if (sizes_.heads % n == 0) fitting.push_back(n);
    }
    throw usage_error(
        fmt::format("{} heads of attention do not divide among {} ranks", sizes_.heads, group.size()),
        fmt::format("--mesh tensor={}", group.size()),
        fmt::format("let tensor be one of {}", fmt::join(fitting, ", ")));
  }
  group_ = &group;
  const Range part = part_of(sizes_.heads, group.rank(), group.size());
  heads_ = part.size();
  const auto head_width = sizes_.width / sizes_.heads;
  hold_slice(parameters_[2], 1, part, {3, sizes_.heads, head_width, sizes_.width});
  hold_slice(parameters_[3], 1, part, {3, sizes_.heads, head_width});
  hold_slice(parameters_[4], 1, part, {sizes_.width, sizes_.heads, head_width});
  return flow;
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
  const double share = share_of(parameters_[2]);
  const double products = 8.0 * e.tokens * e.width * e.width;
  const double pairs = e.samples * e.length * (e.length + 1.0) / 2.0;  // causal: half of the square
  return {.flops = (products + 4.0 * pairs * e.width) * share,
          .parameter_bytes = ((4.0 * e.width * e.width + 3.0 * e.width) * share + 3.0 * e.width) * e.bytes,
          .activation_bytes = (2.0 + 5.0 * share) * e.tokens * e.width * e.bytes,
          .entered_bytes = summed(e, group_),
          .left_bytes = summed(e, group_)};
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
  const at::Tensor inner = at::gelu(
      at::linear(entered(normed(input, parameters_), group_), parameters_[2].value, parameters_[3].value));
  const at::Tensor outer = projected(inner, parameters_[4], parameters_[5], group_);
  return {input + dropped(outer, sizes_, name(), context)};
}

Cost GptMlp::cost(const std::vector<Shape>& inputs) const {
  const auto e = extents_of(inputs.at(0), sizes_);
  const double share = share_of(parameters_[2]);
  return {.flops = 16.0 * e.tokens * e.width * e.width * share,
          .parameter_bytes = ((8.0 * e.width * e.width + 4.0 * e.width) * share + 3.0 * e.width) * e.bytes,
          .activation_bytes = (2.0 + 8.0 * share) * e.tokens * e.width * e.bytes,
          .entered_bytes = summed(e, group_),
          .left_bytes = summed(e, group_)};
}

Flow GptMlp::slice(TensorGroup& group, const Flow& flow) {
  group_ = &group;
  const Range part = part_of(4 * sizes_.width, group.rank(), group.size());
  hold_slice(parameters_[2], 0, part);
  hold_slice(parameters_[3], 0, part);
  hold_slice(parameters_[4], 1, part);
  return flow;
}

GptHead::GptHead(const GptSizes& sizes, GptEmbedding& embedding)
    : Layer("lm_head"), sizes_(sizes), embedding_(embedding) {
  parameters_.push_back(parameter(sizes, "transformer.ln_f.weight", {sizes.width}, kOne));
  parameters_.push_back(parameter(sizes, "transformer.ln_f.bias", {sizes.width}, kZero));
}

Tensors GptHead::forward(const Tensors& inputs, const Context& /*context*/) {
  return {at::linear(entered(normed(inputs.at(0), parameters_), group_), embedding_.parameters()[0].value)};
}

at::Tensor GptHead::of_all_words(const at::Tensor& logits) const {
  if (group_ == nullptr) return logits;
  Shape shape = logits.sizes().vec();
  shape.back() = sizes_.vocabulary;
  at::Tensor all = at::zeros(shape, logits.options().requires_grad(false));
  const Range part = embedding_.parameters()[0].slice->part;
  all.narrow(-1, part.begin, part.size()).copy_(logits.detach());
  group_->sum(all);
  return all;
}

Flow GptHead::slice(TensorGroup& group, const Flow& /*flow*/) {
  group_ = &group;
  return {.whole = sizes_.vocabulary, .part = part_of(sizes_.vocabulary, group.rank(), group.size())};
}

std::vector<Shape> GptHead::output_shapes(const std::vector<Shape>& inputs) const {
  Shape shape = inputs.at(0);
  shape.back() = embedding_.parameters()[0].value.size(0);
  return {shape};
}

Cost GptHead::cost(const std::vector<Shape>& inputs) const {
  const auto e = extents_of(inputs.at(0), sizes_);
  const auto words = static_cast<double>(embedding_.parameters()[0].value.size(0));
  return {.flops = 2.0 * e.tokens * e.width * words,
          .parameter_bytes = 2.0 * e.width * e.bytes,
          .activation_bytes = e.tokens * (e.width + words) * e.bytes,
          .entered_bytes = summed(e, group_)};
}

}  // namespace dtrain::models
