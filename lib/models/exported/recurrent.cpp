#include "models/exported/recurrent.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <fmt/format.h>

#include <tuple>
#include <vector>

#include "models/exported/masks.hpp"
#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

struct Sizes {
  bool has_biases = true;
  std::int64_t layers = 1;
  double dropout = 0;
  bool bidirectional = false;
  bool batch_first = false;
  std::size_t directions() const { return bidirectional ? 2 : 1; }
};

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
        is_lstm_(calls(node, "lstm")),
        input_(places_of(node, scope, "input").at(0)),
        states_(places_of(node, scope, "hx")),
        weights_(places_of(node, scope, "params")) {
    for (const auto& output : node.outputs) {
      for (const ValueId value : output.values) results_.push_back(scope.place_of(value));
    }
    for (std::int64_t layer = 0; layer + 1 < sizes.layers; ++layer)
      streams_.push_back(stream_of(node, fmt::format(".layer{}", layer)));
    const auto count = static_cast<std::size_t>(sizes.layers) * sizes.directions();
    if (weights_.empty() || weights_.size() % count != 0 || states_.size() != (is_lstm_ ? 2U : 1U) ||
        results_.size() != states_.size() + 1) {
      throw refused(node, "has other parameters than its layers need", "export it with PyTorch 2.11");
    }
  }

  void run(Workspace& work) override {
    at::Tensor flowing = work.tensors[input_];
    const auto layers = static_cast<std::size_t>(sizes_.layers);
    const std::size_t each = weights_.size() / layers;
    const auto directions = static_cast<std::int64_t>(sizes_.directions());
    std::vector<at::Tensor> last;   // of each layer
    std::vector<at::Tensor> cells;  // of each layer of an LSTM
    for (std::size_t layer = 0; layer < layers; ++layer) {
      std::vector<at::Tensor> weights;
      for (std::size_t i = 0; i < each; ++i) weights.push_back(work.tensors[weights_[layer * each + i]]);
      std::vector<at::Tensor> states;
      for (const auto place : states_) {
        states.push_back(
            work.tensors[place].narrow(0, static_cast<std::int64_t>(layer) * directions, directions));
      }
      const bool trains = work.context.mode == Mode::training;
      if (is_lstm_) {
        auto [outputs, hidden, cell] = at::lstm(flowing, states, weights, sizes_.has_biases, 1, 0.0, trains,
                                                sizes_.bidirectional, sizes_.batch_first);
        flowing = outputs;
        last.push_back(hidden);
        cells.push_back(cell);
      } else {
        auto [outputs, hidden] = at::gru(flowing, states[0], weights, sizes_.has_biases, 1, 0.0, trains,
                                         sizes_.bidirectional, sizes_.batch_first);
        flowing = outputs;
        last.push_back(hidden);
      }
      if (layer + 1 < layers) flowing = dropped(flowing, sizes_.dropout, work.context, streams_[layer]);
    }
    work.tensors[results_[0]] = flowing;
    work.tensors[results_[1]] = at::cat(last);
    if (is_lstm_) work.tensors[results_[2]] = at::cat(cells);
  }

 private:
  Sizes sizes_;
  bool is_lstm_;
  std::size_t input_;
  std::vector<std::size_t> states_, weights_, results_;
  std::vector<std::uint32_t> streams_;
};

}  // namespace

std::unique_ptr<Operation> recurrent_operation(const Node& node, const Scope& scope) {
  const auto* dropout = node.find("dropout");
  const auto* layers = node.find("num_layers");
  if (dropout == nullptr || layers == nullptr) return nullptr;
  Sizes sizes;
  sizes.dropout = dropout->kind == Argument::Kind::real ? dropout->reals.at(0) : 0.0;
  sizes.layers = layers->kind == Argument::Kind::size ? layers->sizes.at(0).number : 0;
  if (sizes.dropout == 0.0 || sizes.layers == 1) return nullptr;
  if (sizes.layers < 1 || sizes.layers > 1000 || !(sizes.dropout > 0.0 && sizes.dropout <= 1.0)) {
    throw refused(node, fmt::format("has {} layers and a dropout of {}", sizes.layers, sizes.dropout),
                  "use at least 1 layer, and a probability");
  }
  if (!node.target.ends_with(".input")) {
    throw refused(node, "drops between the layers of packed sequences",
                  "use sequences of one length, or an LSTM or GRU of one layer each with nn.Dropout between");
  }
  if (!scope.drops) sizes.dropout = 0;
  const auto flag = [&](const char* name, bool otherwise) {
    const auto* argument = node.find(name);
    return argument != nullptr && argument->kind == Argument::Kind::boolean ? argument->booleans.at(0)
                                                                            : otherwise;
  };
  sizes.has_biases = flag("has_biases", true);
  sizes.bidirectional = flag("bidirectional", false);
  sizes.batch_first = flag("batch_first", false);
  return std::make_unique<RecurrentOperation>(node, scope, sizes);
}

}  // namespace dtrain::models::exported
