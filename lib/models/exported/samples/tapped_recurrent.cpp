#include "models/exported/samples/tapped_recurrent.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "models/compute/sample_tap.hpp"
#include "models/layers/lstm.hpp"

namespace dtrain::models::exported {
namespace {

using Kind = RecurrentLayer::Kind;

/// Of one direction. The biases may be undefined.
struct Weights {
  at::Tensor input;   // [gates, F]
  at::Tensor hidden;  // [gates, hidden]
  at::Tensor input_bias;
  at::Tensor hidden_bias;
};

struct Passed {
  at::Tensor outputs;            // [n, T, hidden]
  std::vector<at::Tensor> last;  // [n, hidden]
};

/// What goes into the gates from the state before each step: the use of its weight, and that of its bias,
/// over all steps at once. A number that is added to each product, and is 0, gets the product's gradient.
class StateProducts {
 public:
  StateProducts(const Weights& weights, std::int64_t n, std::int64_t steps)
      : weight_(weights.hidden), bias_(weights.hidden_bias) {
    auto* tap = SampleTap::open();
    expect(*tap, weight_, ParameterUse::Kind::product);
    expect(*tap, bias_, ParameterUse::Kind::shift);
    if (uses_.empty()) return;
    zeros_ = at::zeros({n, steps, weight_.size(0)}, weight_.options().requires_grad(false)).requires_grad_();
    each_ = zeros_.unbind(1);
  }

  /// From the state before step `t`, [n, hidden]: [n, gates].
  at::Tensor at_step(std::size_t t, const at::Tensor& state) {
    auto product = at::linear(state, weight_, bias_.defined() ? std::optional(bias_) : std::nullopt);
    if (uses_.empty()) return product;
    states_.push_back(state.detach());
    return product + each_.at(t);
  }

  /// After the last step.
  void end() const {
    if (uses_.empty()) return;
    for (const auto& use : uses_) {
      if (use->kind != ParameterUse::Kind::product) continue;
      use->input = at::stack(states_, 1);
      use->version = use->input._version();
    }
    zeros_.register_hook([uses = uses_](const at::Tensor& gradient) {
      for (const auto& use : uses) use->gradient = gradient.detach();
    });
  }

 private:
  void expect(SampleTap& tap, at::Tensor& value, ParameterUse::Kind kind) {
    auto* parameter = tap.parameter_of(value);
    if (parameter == nullptr) return;
    uses_.push_back(tap.expect({.kind = kind, .parameter = parameter, .shape = {1, 1, value.size(0)}}));
    value = value.detach();
  }

  at::Tensor weight_, bias_;
  std::vector<std::shared_ptr<ParameterUse>> uses_;
  at::Tensor zeros_;  // [n, T, gates]
  std::vector<at::Tensor> each_;
  std::vector<at::Tensor> states_;
};

/// PyTorch's: reset, update, new. `from_input`, `from_state`: [n, 3 hidden].
at::Tensor gru_step(const at::Tensor& from_input, const at::Tensor& from_state, const at::Tensor& state) {
  const auto input = from_input.chunk(3, 1);
  const auto before = from_state.chunk(3, 1);
  const auto reset = at::sigmoid(input[0] + before[0]);
  const auto update = at::sigmoid(input[1] + before[1]);
  const auto made = at::tanh(input[2] + reset * before[2]);
  return made + update * (state - made);
}

Passed by_steps(Kind kind, const at::Tensor& rows, at::Tensor state, const Weights& weights) {
  const auto from_input = tapped_linear(rows, weights.input, weights.input_bias).unbind(1);
  StateProducts products(weights, rows.size(0), rows.size(1));
  std::vector<at::Tensor> outputs;
  for (std::size_t t = 0; t < from_input.size(); ++t) {
    const auto from_state = products.at_step(t, state);
    if (kind == Kind::gru) {
      state = gru_step(from_input[t], from_state, state);
    } else {
      const auto sum = from_input[t] + from_state;
      state = kind == Kind::tanh ? at::tanh(sum) : at::relu(sum);
    }
    outputs.push_back(state);
  }
  products.end();
  return {at::stack(outputs, 1), {state}};
}

Passed by_own_lstm(const at::Tensor& rows, const at::Tensor& hidden, const at::Tensor& cell,
                   const Weights& weights) {
  const auto n = rows.size(0);
  const auto steps = rows.size(1);
  const auto width = weights.hidden.size(-1);
  TORCH_CHECK(weights.hidden.sizes() == at::IntArrayRef({4 * width, width}) &&
                  weights.input.sizes() == at::IntArrayRef({4 * width, rows.size(2)}) &&
                  hidden.sizes() == at::IntArrayRef({n, width}) && cell.sizes() == hidden.sizes(),
              "an LSTM has weights of ", weights.hidden.sizes(), " and ", weights.input.sizes());
  for (const at::Tensor& given : {weights.input_bias, weights.hidden_bias}) {
    TORCH_CHECK(!given.defined() || given.sizes() == at::IntArrayRef({4 * width}), "an LSTM of ", width,
                " has biases of ", given.sizes());
  }
  const SampleTap::PackedRows packed(at::arange(n, at::kLong).repeat({steps}));
  const auto bias = [&](const at::Tensor& given) {
    return given.defined()
               ? given
               : at::zeros({weights.hidden.size(0)}, weights.hidden.options().requires_grad(false));
  };
  const auto made =
      lstm(rows.transpose(0, 1).reshape({steps * n, rows.size(2)}),
           std::vector<std::int64_t>(static_cast<std::size_t>(steps), n), {hidden, cell},
           {weights.input, weights.hidden, bias(weights.input_bias), bias(weights.hidden_bias)});
  return {made.outputs.view({steps, n, -1}).transpose(0, 1), {made.last.hidden, made.last.cell}};
}

}  // namespace

std::vector<at::Tensor> tapped_recurrent(const RecurrentLayer& layer, const at::Tensor& inputs,
                                         const std::vector<at::Tensor>& states,
                                         const std::vector<at::Tensor>& weights) {
  const auto rows = layer.batch_first ? inputs : inputs.transpose(0, 1);
  const std::size_t each = weights.size() / layer.directions();
  std::vector<at::Tensor> outputs;
  std::vector<std::vector<at::Tensor>> last(states.size());
  for (std::size_t direction = 0; direction < layer.directions(); ++direction) {
    const auto* own = &weights.at(direction * each);
    const Weights here{.input = own[0],
                       .hidden = own[1],
                       .input_bias = layer.has_biases ? own[2] : at::Tensor(),
                       .hidden_bias = layer.has_biases ? own[3] : at::Tensor()};
    const auto before = [&](std::size_t i) { return states.at(i)[static_cast<std::int64_t>(direction)]; };
    const auto in_order = direction == 0 ? rows : at::flip(rows, {1});
    const auto passed = layer.kind == Kind::lstm ? by_own_lstm(in_order, before(0), before(1), here)
                                                 : by_steps(layer.kind, in_order, before(0), here);
    outputs.push_back(direction == 0 ? passed.outputs : at::flip(passed.outputs, {1}));
    for (std::size_t i = 0; i < last.size(); ++i) last[i].push_back(passed.last.at(i));
  }
  const auto joined = at::cat(outputs, 2);
  std::vector<at::Tensor> results = {layer.batch_first ? joined : joined.transpose(0, 1)};
  for (const auto& of_directions : last) results.push_back(at::stack(of_directions));
  return results;
}

}  // namespace dtrain::models::exported
