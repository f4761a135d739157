#include "models/networks/gpt_layers.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "models/compute/element_type.hpp"
#include "models/compute/loss_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/product_weight.hpp"
#include "models/compute/sample_tap.hpp"
#include "models/layers/dropout.hpp"
#include "models/layers/fused/fused_linear.hpp"
#include "models/layers/fused/fused_norm.hpp"
#include "models/layers/fused/fused_perceptron.hpp"
#include "models/layers/fused/product_gradients.hpp"
#include "models/layers/vocabulary.hpp"
#include "models/shape.hpp"
#include "models/slicing/slices.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models {
namespace {

constexpr double kDeviation = 0.02;
constexpr double kEps = 1e-5;
const Initialisation kWeight{Initialisation::Kind::normal, kDeviation};
const Initialisation kZero{Initialisation::Kind::zero};
const Initialisation kOne{Initialisation::Kind::one};

Parameter parameter(const GptSizes& sizes, const std::string& name, const Shape& shape, Initialisation init,
                    Slicing slicing = Slicing::none) {
  const auto device = sizes.allocate ? at::kCPU : at::kMeta;
  return {.name = name,
          .value = at::empty(shape, at::TensorOptions().device(device)).requires_grad_(),
          .init = init,
          .slicing = slicing};
}

/// By the layer's first two parameters, with `used` instead of their values. What ranks of a tensor axis
/// exchange stays in full precision.
NormedInput normed_input(const Tensors& inputs, const std::vector<Parameter>& parameters, const Tensors& used,
                         const TokenFlow& flow) {
  const auto own = [&](std::size_t i) {
    return used[i].is_same(parameters[i].value) ? &parameters[i] : nullptr;
  };
  return models::normed_input(inputs, {used[0], used[1], own(0), own(1)}, kEps,
                              flow.group() == nullptr ? product_type() : at::kFloat);
}

Tensors values_of_norm(const std::vector<Parameter>& parameters) {
  return {parameters[0].value, parameters[1].value};
}

/// The sum of both, or, for a layer that begins with it, the two of them. What ranks of a tensor axis
/// exchange is whole.
Tensors residual_sum(const at::Tensor& input, const at::Tensor& branch, const TokenFlow& flow,
                     const Context& context) {
  if (context.joins_next && fused_kernels_are_on() && flow.group() == nullptr) return {input, branch};
  return {input + branch};
}

at::Tensor product_weight(const Parameter& weight) { return models::product_weight(weight.value, weight); }

/// x W^T + b, of whose inputs and W's columns this rank may hold a part.
at::Tensor projected(const at::Tensor& input, const Parameter& weight, const at::Tensor& bias,
                     const TokenFlow& flow) {
  const at::Tensor factor = product_weight(weight);
  if (flow.group() == nullptr) return tapped_linear(input, factor, bias);
  return flow.out_of_slices(at::linear(input, factor)) + bias;
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

at::Tensor dropped(const at::Tensor& input, const GptSizes& sizes, const TokenFlow& flow,
                   const std::string& name, const Context& context) {
  if (context.mode == Mode::evaluation || sizes.dropout == 0.0) return input;
  return dropout(input, sizes.dropout, context.dropout_key(kernels::stream_of(name)), flow.place());
}

/// A layer's texts in numbers.
struct Extents {
  double samples;
  double length;  ///< Tokens of a text.
  double tokens;  ///< Of all texts.
  double own;     ///< Those of them that this rank has between slices.
  double width;
  double bytes;
};

/// `shape` [n, T, ...]; of T between slices.
Extents extents_of(const Shape& shape, const GptSizes& sizes, const TokenFlow& flow) {
  const auto n = static_cast<double>(shape.at(0));
  const auto t = static_cast<double>(flow.all_tokens(shape.at(1)));
  const auto own = static_cast<double>(shape.at(1));
  return {n, t, n * t, n * own, static_cast<double>(sizes.width), 4.0};
}

/// What goes into or out of slices, with the `shared` elements of parameters that are used between them.
double summed(const Extents& e, const TokenFlow& flow, double shared) {
  if (flow.group() == nullptr) return 0.0;
  return (e.tokens * e.width + (flow.shared() ? shared : 0.0)) * e.bytes;
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

void GptEmbedding::check(std::int64_t tokens, const Shape& shape) const {
  if (shape.size() == 2 && tokens <= sizes_.block) return;
  throw input_error(name(), fmt::format("ids [n, T] with T of at most {}", sizes_.block), shape);
}

at::Tensor GptEmbedding::embed(const at::Tensor& ids, std::int64_t before) const {
  check(before + ids.size(-1), ids.sizes().vec());
  return flow_.whole().out_of_slices(held_rows(parameters_[0], ids)) +
         parameters_[1].value.narrow(0, before, ids.size(1));
}

Flow GptEmbedding::slice(TensorGroup& group, const Flow& flow) {
  flow_ = TokenFlow(group, sizes_.tokens);
  hold_slice(parameters_[0], 0, part_of(sizes_.vocabulary, group.rank(), group.size()));
  return flow;
}

Tensors GptEmbedding::forward(const Tensors& inputs, const Context& context) {
  const at::Tensor& ids = inputs.at(0);
  check(ids.size(-1), ids.sizes().vec());
  const at::Tensor words = flow_.out_of_slices(held_rows(parameters_[0], ids));
  const at::Tensor positions = flow_.between_slices({&parameters_[1]})[0];
  const Range own = flow_.shared() ? flow_.place().part : Range{0, ids.size(1)};
  const at::Tensor sum = own.begin == 0 ? tapped_sum(words, positions, own.size())
                                        : words + positions.narrow(0, own.begin, own.size());
  return {dropped(sum, sizes_, flow_, name(), context)};
}

std::vector<Shape> GptEmbedding::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& ids = inputs.at(0);
  check(ids.back(), ids);
  return {{ids[0], flow_.own_tokens(ids[1]), sizes_.width}};
}

Cost GptEmbedding::cost(const std::vector<Shape>& inputs) const {
  const auto e = extents_of(output_shapes(inputs)[0], sizes_, flow_);
  const auto positions = static_cast<double>(sizes_.block) * e.width;
  return {
      .flops = e.own * e.width,
      .parameter_bytes =
          (static_cast<double>(sizes_.vocabulary) * e.width * share_of(parameters_[0]) + positions) * e.bytes,
      .activation_bytes = e.own * e.width * e.bytes,
      .left_bytes = summed(e, flow_, positions)};
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

at::Tensor GptAttention::attend(const at::Tensor& normed, const at::Tensor& bias, const TokenFlow& flow,
                                KeysValues* cache) const {
  const bool joins = flow.group() == nullptr && takes_product_gradients(normed, parameters_[2]);
  const at::Tensor joined =
      joins ? fused_linear(normed, parameters_[2], parameters_[3])
            : flow.into_slices(normed, product_weight(parameters_[2]), parameters_[3].value);
  const auto n = joined.size(0);
  const auto length = joined.size(1);
  const auto head_width = sizes_.width / sizes_.heads;
  const auto width = heads_ * head_width;
  const auto parts =
      joined.split(width, 2);  // in backward one tensor; of three narrow() each would make its own
  const auto part = [&](std::size_t index) {
    return parts[index].view({n, length, heads_, head_width}).transpose(1, 2);
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
  const at::Tensor rows = mixed.transpose(1, 2).reshape({n, length, width});
  if (joins) return fused_linear(rows, parameters_[4], parameters_[5]);
  return projected(rows, parameters_[4], bias, flow);
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
  flow_ = TokenFlow(group, sizes_.tokens);
  const Range part = part_of(sizes_.heads, group.rank(), group.size());
  heads_ = part.size();
  const auto head_width = sizes_.width / sizes_.heads;
  hold_slice(parameters_[2], 1, part, {3, sizes_.heads, head_width, sizes_.width});
  hold_slice(parameters_[3], 1, part, {3, sizes_.heads, head_width});
  hold_slice(parameters_[4], 1, part, {sizes_.width, sizes_.heads, head_width});
  return flow;
}

Tensors GptAttention::forward(const Tensors& inputs, const Context& context) {
  const auto used = flow_.between_slices({&parameters_[0], &parameters_[1], &parameters_[5]});
  const auto [input, normed] = normed_input(inputs, parameters_, used, flow_);
  const at::Tensor branch = attend(normed, used[2], flow_, nullptr);
  return residual_sum(input, dropped(branch, sizes_, flow_, name(), context), flow_, context);
}

at::Tensor GptAttention::forward_cached(const at::Tensor& input, KeysValues& cache) const {
  const at::Tensor normed =
      normed_input({input}, parameters_, values_of_norm(parameters_), flow_.whole()).normed;
  return input + attend(normed, parameters_[5].value, flow_.whole(), &cache);
}

Cost GptAttention::cost(const std::vector<Shape>& inputs) const {
  const auto e = extents_of(inputs.at(0), sizes_, flow_);
  const double share = share_of(parameters_[2]);
  const double products = 8.0 * e.tokens * e.width * e.width;
  const double pairs = e.samples * e.length * (e.length + 1.0) / 2.0;  // causal: half of the square
  return {.flops = (products + 4.0 * pairs * e.width) * share,
          .parameter_bytes = ((4.0 * e.width * e.width + 3.0 * e.width) * share + 3.0 * e.width) * e.bytes,
          .activation_bytes = (e.own + (1.0 + 5.0 * share) * e.tokens) * e.width * e.bytes,
          .inner_bytes = 4.0 * share * e.tokens * e.width * e.bytes,
          .entered_bytes = summed(e, flow_, 3.0 * e.width),
          .left_bytes = summed(e, flow_, 0.0),
          .products = Cost::Products::inside,
          .full_bytes = e.own * e.width * e.bytes};
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

at::Tensor GptMlp::branch(const at::Tensor& normed, const at::Tensor& bias, const TokenFlow& flow) const {
  if (flow.group() == nullptr && takes_product_gradients(normed, parameters_[2])) {
    return fused_perceptron(normed, {parameters_[2], parameters_[3], parameters_[4], parameters_[5]});
  }
  const at::Tensor inner = flow.into_slices(normed, product_weight(parameters_[2]), parameters_[3].value);
  return projected(at::gelu(inner), parameters_[4], bias, flow);
}

Tensors GptMlp::forward(const Tensors& inputs, const Context& context) {
  const auto used = flow_.between_slices({&parameters_[0], &parameters_[1], &parameters_[5]});
  const auto [input, normed] = normed_input(inputs, parameters_, used, flow_);
  const at::Tensor added = dropped(branch(normed, used[2], flow_), sizes_, flow_, name(), context);
  return residual_sum(input, added, flow_, context);
}

at::Tensor GptMlp::forward_whole(const at::Tensor& input) const {
  const at::Tensor normed =
      normed_input({input}, parameters_, values_of_norm(parameters_), flow_.whole()).normed;
  return input + branch(normed, parameters_[5].value, flow_.whole());
}

Cost GptMlp::cost(const std::vector<Shape>& inputs) const {
  const auto e = extents_of(inputs.at(0), sizes_, flow_);
  const double share = share_of(parameters_[2]);
  return {.flops = 16.0 * e.tokens * e.width * e.width * share,
          .parameter_bytes = ((8.0 * e.width * e.width + 4.0 * e.width) * share + 3.0 * e.width) * e.bytes,
          .activation_bytes = (e.own + (1.0 + 8.0 * share) * e.tokens) * e.width * e.bytes,
          .inner_bytes = 6.0 * share * e.tokens * e.width * e.bytes,
          .entered_bytes = summed(e, flow_, 3.0 * e.width),
          .left_bytes = summed(e, flow_, 0.0),
          .products = Cost::Products::inside,
          .full_bytes = e.own * e.width * e.bytes};
}

Flow GptMlp::slice(TensorGroup& group, const Flow& flow) {
  flow_ = TokenFlow(group, sizes_.tokens);
  const Range part = part_of(4 * sizes_.width, group.rank(), group.size());
  hold_slice(parameters_[2], 0, part);
  hold_slice(parameters_[3], 0, part);
  hold_slice(parameters_[4], 1, part);
  return flow;
}

GptHead::GptHead(const GptSizes& sizes, GptEmbedding& embedding)
    : Layer("lm_head"), sizes_(sizes), words_(embedding.parameters()[0]) {
  parameters_.push_back(parameter(sizes, "transformer.ln_f.weight", {sizes.width}, kOne));
  parameters_.push_back(parameter(sizes, "transformer.ln_f.bias", {sizes.width}, kZero));
}

at::Tensor GptHead::logits(const Tensors& inputs, const TokenFlow& flow, Columns columns) const {
  const auto used = flow.between_slices({&parameters_[0], &parameters_[1]});
  const at::Tensor normed = normed_input(inputs, parameters_, used, flow).normed;
  const std::int64_t missing = padded_columns(words_.value().size(0)) - words_.value().size(0);
  const at::Tensor words = models::product_weight(words_.value(), words_.parameter());
  if (columns == Columns::words || missing == 0) return flow.into_slices(normed, words, {});
  return flow.into_slices(normed, at::constant_pad_nd(as_factor(words), {0, 0, 0, missing}), {});
}

bool GptHead::gives_factors() const {
  return flow_.group() == nullptr && loss_takes_factors() && words_.value().scalar_type() == at::kFloat;
}

Tensors GptHead::forward(const Tensors& inputs, const Context& context) {
  if (context.mode == Mode::training && gives_factors() && fused_kernels_for(words_.value()) != nullptr) {
    const auto used = flow_.between_slices({&parameters_[0], &parameters_[1]});
    const at::Tensor normed = normed_input(inputs, parameters_, used, flow_).normed;
    return {as_factor(normed), words_.value()};
  }
  const bool padded = context.mode == Mode::training && fused_kernels_are_on();
  return {logits(inputs, flow_, padded ? Columns::padded : Columns::words)};
}

OutputWords GptHead::words_of(const Tensors& factors) const {
  const Parameter& parameter = words_.parameter();
  const at::Tensor& value = factors.at(1);
  const auto type = factors[0].scalar_type();
  const bool has_copy = parameter.half.defined() && parameter.half.scalar_type() == type;
  const bool own = value.is_same(parameter.value);  // else its gradient is kept apart
  return {value, (has_copy ? parameter.half : value.detach().to(type)).contiguous(),
          own ? &parameter : nullptr};
}

at::Tensor GptHead::logits_of_all_words(const at::Tensor& input) const {
  return of_all_words(logits({input}, flow_.whole(), Columns::words), words_.parameter(), flow_.group());
}

Flow GptHead::slice(TensorGroup& group, const Flow& /*flow*/) {
  flow_ = TokenFlow(group, sizes_.tokens);
  return {.whole = sizes_.vocabulary, .part = part_of(sizes_.vocabulary, group.rank(), group.size())};
}

std::vector<Shape> GptHead::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  if (gives_factors()) return {shape, words_.value().sizes().vec()};
  return {{shape.at(0), flow_.all_tokens(shape.at(1)), words_.value().size(0)}};
}

Cost GptHead::cost(const std::vector<Shape>& inputs) const {
  const auto e = extents_of(inputs.at(0), sizes_, flow_);
  const std::int64_t words = words_.value().size(0);
  if (gives_factors()) {  // the loss has the gradients of both, the words' in full, and a piece of the logits
    const auto columns = static_cast<double>(padded_columns(words));
    const auto at_once = static_cast<double>(
        rows_of_piece(static_cast<std::int64_t>(e.tokens), rows_at_once(padded_columns(words), 2)));
    const double of_words = columns * e.width * e.bytes;
    return {.flops = 2.0 * e.tokens * e.width * columns,
            .parameter_bytes = 2.0 * e.width * e.bytes,
            .activation_bytes =
                of_words + (2.0 * e.tokens * e.width + std::min(e.tokens, at_once) * columns) * e.bytes,
            .products = Cost::Products::inside,
            .full_bytes = of_words};
  }
  const auto held = static_cast<double>(fused_kernels_are_on() ? padded_columns(words) : words);
  return {.flops = 2.0 * e.tokens * e.width * held,
          .parameter_bytes = 2.0 * e.width * e.bytes,
          .activation_bytes = e.tokens * (e.width + held) * e.bytes,
          .entered_bytes = summed(e, flow_, 2.0 * e.width),
          .products = Cost::Products::inside};
}

}  // namespace dtrain::models
