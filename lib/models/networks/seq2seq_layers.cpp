#include "models/networks/seq2seq_layers.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "kernels/fill.hpp"
#include "models/compute/beside.hpp"
#include "models/compute/product_weight.hpp"
#include "models/compute/sample_tap.hpp"
#include "models/layers/dropout.hpp"
#include "models/layers/vocabulary.hpp"
#include "models/shape.hpp"
#include "models/slicing/slices.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models {
namespace {

constexpr double kBound = 0.08;        // Sutskever, Vinyals and Le 2014, section 3.4
constexpr std::size_t kFirstLstm = 1;  // parameters: the embedding, then the LSTM's

at::Tensor dropped(const at::Tensor& input, double probability, const std::string& name,
                   const Context& context) {
  if (context.mode == Mode::evaluation || probability == 0.0) return input;
  return dropout(input, probability, context.dropout_key(kernels::stream_of(name)));
}

void check_ids(const std::string& layer, const at::Tensor& ids, const char* what) {
  if (ids.dim() != 2 || ids.scalar_type() != at::kInt) throw input_error(layer, what, ids.sizes());
}

at::Tensor rows_tensor(std::vector<std::int64_t> rows) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(rows.size())}, at::kLong);
  std::copy(rows.begin(), rows.end(), tensor.data_ptr<std::int64_t>());
  return tensor;
}

std::vector<LstmState> selected(const std::vector<LstmState>& states, const at::Tensor& rows) {
  std::vector<LstmState> chosen;
  for (const LstmState& state : states) {
    const at::Tensor here = beside(rows, state.hidden);
    chosen.push_back({state.hidden.index_select(0, here), state.cell.index_select(0, here)});
  }
  return chosen;
}

}  // namespace

WordLstm::WordLstm(std::string name, const Seq2SeqSizes& sizes, std::int64_t vocabulary)
    : name_(std::move(name)), sizes_(sizes), vocabulary_(vocabulary) {}

std::vector<Parameter> WordLstm::make_parameters() const {
  std::vector<Parameter> all = {{.name = name_ + ".embedding.weight",
                                 .value = at::empty({vocabulary_, sizes_.embedding}).requires_grad_(),
                                 .init = {Initialisation::Kind::uniform, kBound},
                                 .slicing = Slicing::vocabulary}};
  auto stack = lstm_parameters(name_ + ".rnn", sizes_.layers, sizes_.embedding, sizes_.hidden, kBound);
  all.insert(all.end(), stack.begin(), stack.end());
  return all;
}

at::Tensor WordLstm::run(const std::vector<Parameter>& parameters, const at::Tensor& ids,
                         const std::vector<std::int64_t>& batch_sizes, std::vector<LstmState>& state,
                         const Context& context) const {
  require_known(ids, vocabulary_, fmt::format("layer {}", name_));
  at::Tensor flowing = held_rows(parameters[0], ids);
  if (group_ != nullptr) flowing = group_->leave(flowing);
  flowing = dropped(flowing, sizes_.dropout, name_ + ".embedding", context);
  for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
    if (layer > 0) {
      flowing = dropped(flowing, sizes_.dropout, fmt::format("{}.rnn.{}", name_, layer), context);
    }
    LstmState& own = state[static_cast<std::size_t>(layer)];
    LstmResult result = lstm(flowing, batch_sizes, own, lstm_weights(parameters, kFirstLstm, layer));
    flowing = result.outputs;
    own = std::move(result.last);
  }
  return flowing;
}

void WordLstm::slice(std::vector<Parameter>& parameters, TensorGroup& group) {
  group_ = &group;
  hold_slice(parameters[0], 0, part_of(vocabulary_, group.rank(), group.size()));
}

Cost WordLstm::cost(const std::vector<Parameter>& parameters, double tokens) const {
  const auto hidden = static_cast<double>(sizes_.hidden);
  auto elements = static_cast<double>(parameters[0].value.numel());
  for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
    const auto into = static_cast<double>(layer == 0 ? sizes_.embedding : sizes_.hidden);
    elements += 4.0 * hidden * (into + hidden + 2.0);
  }
  const double wider = sizes_.layers > 1 ? std::max(static_cast<double>(sizes_.embedding), hidden)
                                         : static_cast<double>(sizes_.embedding);
  const double kept =
      static_cast<double>(sizes_.embedding) + 7.0 * hidden * static_cast<double>(sizes_.layers);
  return {.flops = lstm_flops(tokens, sizes_.layers, sizes_.embedding, sizes_.hidden),
          .parameter_bytes = elements * 4.0,
          .activation_bytes = tokens * kept * 4.0,
          .gradient_bytes = 4.0 * hidden * (wider + hidden) * 4.0,  // of a layer's two weights at once
          .left_bytes = group_ != nullptr ? tokens * static_cast<double>(sizes_.embedding) * 4.0 : 0.0};
}

Encoder::Encoder(const Seq2SeqSizes& sizes)
    : Layer("encoder"), sizes_(sizes), words_("encoder", sizes, sizes.source_vocabulary) {
  parameters_ = words_.make_parameters();
}

Tensors Encoder::forward(const Tensors& inputs, const Context& context) {
  const at::Tensor& source = inputs.at(0);
  check_ids(name(), source, "source ids [n, S]");
  const Packing packing = pack(lengths_of(source), source.size(1));
  const SampleTap::PackedRows rows(samples_of(packing, source.size(1)));
  const at::Tensor zeros =
      at::zeros({source.size(0), sizes_.hidden}, parameters_[0].value.options().requires_grad(false));
  std::vector<LstmState> state(static_cast<std::size_t>(sizes_.layers), LstmState{zeros, zeros});
  words_.run(parameters_, packed(source, packing), packing.batch_sizes, state, context);
  Tensors hidden;
  Tensors cell;
  for (const LstmState& own : selected(state, packing.place)) {
    hidden.push_back(own.hidden);
    cell.push_back(own.cell);
  }
  return {at::stack(hidden), at::stack(cell), inputs.at(1)};
}

std::vector<Shape> Encoder::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape state = {sizes_.layers, inputs.at(0).at(0), sizes_.hidden};
  return {state, state, inputs.at(1)};
}

Cost Encoder::cost(const std::vector<Shape>& inputs) const {
  return words_.cost(parameters_, element_count(inputs.at(0)));
}

Flow Encoder::slice(TensorGroup& group, const Flow& flow) {
  words_.slice(parameters_, group);
  return flow;
}

Decoder::Decoder(const Seq2SeqSizes& sizes)
    : Layer("decoder"), sizes_(sizes), words_("decoder", sizes, sizes.target_vocabulary) {
  parameters_ = words_.make_parameters();
  const Initialisation init{Initialisation::Kind::uniform, kBound};
  parameters_.push_back({.name = "decoder.fc_out.weight",
                         .value = at::empty({sizes.target_vocabulary, sizes.hidden}).requires_grad_(),
                         .init = init,
                         .slicing = Slicing::vocabulary});
  parameters_.push_back({.name = "decoder.fc_out.bias",
                         .value = at::empty({sizes.target_vocabulary}).requires_grad_(),
                         .init = init,
                         .slicing = Slicing::vocabulary});
}

at::Tensor Decoder::step(const at::Tensor& words, std::vector<LstmState>& state) const {
  const Context context{.mode = Mode::evaluation};
  return held_logits(words_.run(parameters_, words, {words.size(0)}, state, context));
}

at::Tensor Decoder::held_logits(const at::Tensor& outputs) const {
  return tapped_linear(group_ != nullptr ? group_->enter(outputs) : outputs,
                       product_weight(output_weight().value, output_weight()), parameters_.back().value);
}

at::Tensor Decoder::logits(const at::Tensor& words, std::vector<LstmState>& state) const {
  return of_all_words(step(words, state), output_weight(), group_);
}

Flow Decoder::slice(TensorGroup& group, const Flow& /*flow*/) {
  group_ = &group;
  words_.slice(parameters_, group);
  const Range part = part_of(sizes_.target_vocabulary, group.rank(), group.size());
  hold_slice(parameters_[parameters_.size() - 2], 0, part);
  hold_slice(parameters_.back(), 0, part);
  return {.whole = sizes_.target_vocabulary, .part = part};
}

std::vector<std::int64_t> Decoder::rows_with_own_words(std::int64_t n, const Context& context) const {
  std::vector<std::int64_t> rows;
  if (context.feedback == Feedback::targets) return rows;
  const bool by_chance = context.feedback == Feedback::by_chance;
  if (by_chance && context.mode == Mode::evaluation) return rows;
  std::vector<float> draws(static_cast<std::size_t>(n), 1.0F);
  if (by_chance) {
    const kernels::RandomKey key{context.seed, kernels::Purpose::teacher_forcing, context.step,
                                 context.micro_batch, kernels::stream_of(name())};
    kernels::fill_uniform(draws.data(), draws.size(), key, 0, 0.0F, 1.0F);
  }
  for (std::int64_t row = 0; row < n; ++row) {
    if (draws[static_cast<std::size_t>(row)] >= sizes_.teacher_forcing) rows.push_back(row);
  }
  return rows;
}

/// `fed` [n, T] with the words of `rows` after the first replaced by those the decoder finds likeliest.
at::Tensor Decoder::with_own_words(const at::Tensor& fed, const std::vector<std::int64_t>& lengths,
                                   const std::vector<std::int64_t>& rows,
                                   const std::vector<LstmState>& start) const {
  const at::NoGradGuard no_grad;
  std::vector<std::int64_t> sorted = rows;  // longest first: those that have ended fall away at the end
  const auto length = [&](std::int64_t row) { return lengths[static_cast<std::size_t>(row)]; };
  std::ranges::stable_sort(sorted, [&](auto a, auto b) { return length(a) > length(b); });
  at::Tensor own = fed.contiguous().clone();
  auto* words = own.data_ptr<std::int32_t>();
  const auto width = own.size(1);
  std::vector<LstmState> state = selected(start, rows_tensor(sorted));
  for (std::int64_t t = 0;; ++t) {
    while (!sorted.empty() && length(sorted.back()) <= t + 1) sorted.pop_back();
    if (sorted.empty()) return own;
    const auto n = static_cast<std::int64_t>(sorted.size());
    at::Tensor current = at::empty({n}, at::kInt);
    for (std::int64_t i = 0; i < n; ++i) {
      current.data_ptr<std::int32_t>()[i] = words[sorted[static_cast<std::size_t>(i)] * width + t];
    }
    for (LstmState& layer : state) {
      layer = {layer.hidden.narrow(0, 0, n), layer.cell.narrow(0, 0, n)};
    }
    const at::Tensor likeliest = likeliest_words(step(current, state), output_weight(), group_).cpu();
    for (std::int64_t i = 0; i < n; ++i) {
      words[sorted[static_cast<std::size_t>(i)] * width + t + 1] =
          static_cast<std::int32_t>(likeliest.const_data_ptr<std::int64_t>()[i]);
    }
  }
}

Tensors Decoder::forward(const Tensors& inputs, const Context& context) {
  const at::Tensor& target = inputs.at(2);
  check_ids(name(), target, "target ids [n, T]");
  std::vector<LstmState> state = states_of(inputs.at(0), inputs.at(1));
  std::vector<std::int64_t> lengths = lengths_of(target);
  for (std::int64_t& length : lengths) length = std::max<std::int64_t>(length - 1, 0);  // words to predict
  const Packing packing = pack(lengths, target.size(1));
  at::Tensor fed = target;
  const auto rows = rows_with_own_words(target.size(0), context);
  if (!rows.empty()) fed = with_own_words(target, lengths, rows, state);

  const at::Tensor wanted =
      target.contiguous().view({-1}).index_select(0, packing.positions + 1).to(at::kLong);
  state = selected(state, packing.order);
  const SampleTap::PackedRows packed_rows(samples_of(packing, target.size(1)));
  const at::Tensor outputs =
      words_.run(parameters_, packed(fed, packing), packing.batch_sizes, state, context);
  return {held_logits(outputs), wanted};
}

std::vector<Shape> Decoder::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& target = inputs.at(2);
  const std::int64_t most = target.at(0) * std::max<std::int64_t>(target.at(1) - 1, 0);
  return {{most, output_weight().value.size(0)}, {most}};
}

Cost Decoder::cost(const std::vector<Shape>& inputs) const {
  const auto tokens = static_cast<double>(output_shapes(inputs)[1][0]);
  const auto words = static_cast<double>(output_weight().value.size(0));
  const auto hidden = static_cast<double>(sizes_.hidden);
  Cost cost = words_.cost(parameters_, tokens);
  cost.products = Cost::Products::inside;  // the last one alone
  cost.inside_bytes = cost.activation_bytes;
  cost.inside_parameter_bytes = cost.parameter_bytes;
  cost.flops += tokens * words * (2.0 * hidden + 1.0);
  cost.parameter_bytes += words * (hidden + 1.0) * 4.0;
  cost.activation_bytes += tokens * words * 4.0;
  if (group_ != nullptr) cost.entered_bytes = tokens * hidden * 4.0;
  return cost;
}

std::vector<LstmState> states_of(const at::Tensor& hidden, const at::Tensor& cell) {
  std::vector<LstmState> states;
  for (std::int64_t layer = 0; layer < hidden.size(0); ++layer) {
    states.push_back({hidden.select(0, layer), cell.select(0, layer)});
  }
  return states;
}

}  // namespace dtrain::models
