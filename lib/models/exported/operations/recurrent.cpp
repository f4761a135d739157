#include "models/exported/operations/recurrent.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "models/compute/sample_tap.hpp"
#include "models/exported/operations/masks.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/samples/tapped_recurrent.hpp"

namespace dtrain::models::exported {
namespace {

constexpr std::int64_t kMostLayers = 1000;

struct Sizes {
  RecurrentLayer layer;
  std::int64_t layers = 1;
  double dropout = 0;
};

bool flag_of(const Node& node, const char* name, bool otherwise) {
  const auto* argument = node.find(name);
  return argument != nullptr && argument->kind == Argument::Kind::boolean ? argument->booleans.at(0)
                                                                          : otherwise;
}

/// Nothing where the node lacks what it needs.
std::optional<Sizes> sizes_of(const Node& node) {
  using Kind = RecurrentLayer::Kind;
  const auto* dropout = node.find("dropout");
  const auto* layers = node.find("num_layers");
  if (dropout == nullptr || layers == nullptr) return std::nullopt;
  Sizes sizes;
  sizes.layer = {.kind = calls(node, "lstm")       ? Kind::lstm
                         : calls(node, "gru")      ? Kind::gru
                         : calls(node, "rnn_tanh") ? Kind::tanh
                                                   : Kind::relu,
                 .has_biases = flag_of(node, "has_biases", true),
                 .bidirectional = flag_of(node, "bidirectional", false),
                 .batch_first = flag_of(node, "batch_first", false)};
  sizes.dropout = dropout->kind == Argument::Kind::real ? dropout->reals.at(0) : 0.0;
  sizes.layers = layers->kind == Argument::Kind::size ? layers->sizes.at(0).number : 0;
  return sizes;
}

std::vector<std::size_t> places_of(const Node& node, const Scope& scope, const char* name) {
  const auto* argument = node.find(name);
  std::vector<std::size_t> places;
  if (argument == nullptr) return places;
  for (const auto& value : argument->values) {
    if (value) places.push_back(scope.place_of(*value));
  }
  return places;
}

class RecurrentOperation final : public Operation {
 public:
  RecurrentOperation(const Node& node, const Scope& scope, const Sizes& sizes)
      : sizes_(sizes),
        input_(places_of(node, scope, "input").at(0)),
        states_(places_of(node, scope, "hx")),
        weights_(places_of(node, scope, "params")) {
    for (const auto& output : node.outputs) {
      for (const ValueId value : output.values) results_.push_back(scope.place_of(value));
    }
    for (std::int64_t layer = 0; layer + 1 < sizes.layers; ++layer)
      streams_.push_back(stream_of(node, fmt::format(".layer{}", layer)));
    if (!scope.drops) sizes_.dropout = 0;
    const auto count = static_cast<std::size_t>(sizes.layers) * sizes.layer.directions();
    if (weights_.empty() || weights_.size() % count != 0 || states_.size() != (is_lstm() ? 2U : 1U) ||
        results_.size() != states_.size() + 1) {
      throw refused(node, "has other parameters than its layers need", "export it with PyTorch 2.11");
    }
  }

  void run(Workspace& work) override {
    at::Tensor flowing = work.tensors[input_];
    const auto layers = static_cast<std::size_t>(sizes_.layers);
    const std::size_t each = weights_.size() / layers;
    const auto directions = static_cast<std::int64_t>(sizes_.layer.directions());
    std::vector<std::vector<at::Tensor>> last(states_.size());  // of each layer: hidden, and an LSTM's cell
    for (std::size_t layer = 0; layer < layers; ++layer) {
      std::vector<at::Tensor> weights;
      for (std::size_t i = 0; i < each; ++i) weights.push_back(work.tensors[weights_[layer * each + i]]);
      std::vector<at::Tensor> states;
      for (const auto place : states_) {
        states.push_back(
            work.tensors[place].narrow(0, static_cast<std::int64_t>(layer) * directions, directions));
      }
      auto made = SampleTap::open() != nullptr ? tapped_recurrent(sizes_.layer, flowing, states, weights)
                                               : by_library(flowing, states, weights, work.context.mode);
      flowing = made[0];
      for (std::size_t i = 0; i < last.size(); ++i) last[i].push_back(made[i + 1]);
      if (layer + 1 < layers && sizes_.dropout > 0)
        flowing = dropped(flowing, sizes_.dropout, work.context, streams_[layer]);
    }
    work.tensors[results_[0]] = flowing;
    for (std::size_t i = 0; i < last.size(); ++i) work.tensors[results_[i + 1]] = at::cat(last[i]);
  }

 private:
  bool is_lstm() const { return sizes_.layer.kind == RecurrentLayer::Kind::lstm; }

  /// Plain recurrent networks have no dropout, and come here under a tap alone.
  std::vector<at::Tensor> by_library(const at::Tensor& inputs, const std::vector<at::Tensor>& states,
                                     const std::vector<at::Tensor>& weights, Mode mode) const {
    const auto& layer = sizes_.layer;
    const bool trains = mode == Mode::training;
    if (is_lstm()) {
      auto [outputs, hidden, cell] = at::lstm(inputs, states, weights, layer.has_biases, 1, 0.0, trains,
                                              layer.bidirectional, layer.batch_first);
      return {outputs, hidden, cell};
    }
    auto [outputs, hidden] = at::gru(inputs, states[0], weights, layer.has_biases, 1, 0.0, trains,
                                     layer.bidirectional, layer.batch_first);
    return {outputs, hidden};
  }

  Sizes sizes_;
  std::size_t input_;
  std::vector<std::size_t> states_, weights_, results_;
  std::vector<std::uint32_t> streams_;
};

}  // namespace

std::unique_ptr<Operation> recurrent_operation(const Node& node, const Scope& scope, bool drops) {
  // On a GPU there is no gradient through a call that says it does not train.
  if (!drops) return has_known_parameters(node) ? recurrence_by_layers(node, scope, false) : nullptr;
  const auto sizes = sizes_of(node);
  if (!sizes || sizes->dropout == 0.0 || sizes->layers == 1) return nullptr;
  if (sizes->layers < 1 || sizes->layers > kMostLayers || !(sizes->dropout > 0.0 && sizes->dropout <= 1.0)) {
    throw refused(node, fmt::format("has {} layers and a dropout of {}", sizes->layers, sizes->dropout),
                  "use at least 1 layer, and a probability");
  }
  if (!node.target.ends_with(".input")) {
    throw refused(node, "drops between the layers of packed sequences",
                  "use sequences of one length, or an LSTM or GRU of one layer each with nn.Dropout between");
  }
  return std::make_unique<RecurrentOperation>(node, scope, *sizes);
}

bool is_recurrent(const Node& node) {
  constexpr std::array<const char*, 4> kNames = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
  return std::ranges::any_of(kNames, [&](const char* name) { return calls(node, name); });
}

bool has_known_parameters(const Node& node) {
  const auto layers = number_of(node, "num_layers");
  const auto* params = node.find("params");
  if (!node.target.ends_with(".input") || !layers || *layers < 1 || *layers > kMostLayers) return false;
  const std::size_t each = flag_of(node, "has_biases", true) ? 4 : 2;
  const std::size_t directions = flag_of(node, "bidirectional", false) ? 2 : 1;
  return params != nullptr && params->values.size() == static_cast<std::size_t>(*layers) * directions * each;
}

std::unique_ptr<Operation> recurrence_by_layers(const Node& node, const Scope& scope, bool drops) {
  auto sizes = sizes_of(node);
  if (sizes && !drops) sizes->dropout = 0;
  return sizes ? std::make_unique<RecurrentOperation>(node, scope, *sizes) : nullptr;
}

}  // namespace dtrain::models::exported
