#include "models/layers/lstm.hpp"

#include <ATen/ops/_cudnn_rnn.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cudnn_is_acceptable.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <memory>

#include "kernels/lstm.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/sample_tap.hpp"
#include "models/layers/lstm_buffer.hpp"

namespace dtrain::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

kernels::LstmCells cells_of(const at::Tensor& cell) {
  return {static_cast<std::size_t>(cell.size(0)), static_cast<std::size_t>(cell.size(1))};
}

/// `gates` become activations.
void step_forward(at::Tensor& gates, const at::Tensor& cell_before, at::Tensor& cell, at::Tensor& hidden) {
  if (gates.scalar_type() == at::kDouble) {
    kernels::lstm_forward(gates.data_ptr<double>(), cell_before.const_data_ptr<double>(),
                          cell.data_ptr<double>(), hidden.data_ptr<double>(), cells_of(cell));
  } else {
    kernels::lstm_forward(gates.data_ptr<float>(), cell_before.const_data_ptr<float>(),
                          cell.data_ptr<float>(), hidden.data_ptr<float>(), cells_of(cell));
  }
}

template <class T>
void step_backward_as(at::Tensor& sums, at::Tensor& cell_gradient, const at::Tensor& above,
                      const at::Tensor& carried, const at::Tensor& activations, const at::Tensor& before,
                      const at::Tensor& cell) {
  kernels::lstm_backward(sums.data_ptr<T>(), cell_gradient.data_ptr<T>(), above.const_data_ptr<T>(),
                         carried.const_data_ptr<T>(), activations.const_data_ptr<T>(),
                         before.const_data_ptr<T>(), cell.const_data_ptr<T>(), cells_of(cell));
}

/// What the step before left for the sequences that go on: rows of the packed `values`, or `start`.
at::Tensor before_step(const at::Tensor& values, const at::Tensor& start, std::size_t t, std::int64_t offset,
                       const std::vector<std::int64_t>& sizes) {
  return t == 0 ? start.narrow(0, 0, sizes[0]) : values.narrow(0, offset - sizes[t - 1], sizes[t]);
}

/// What a SampleTap learns of the weights: of the products with both of them, the gradient that comes back is
/// that of the gates' sums. A weight that is not trained has no use.
struct TappedWeights {
  std::array<std::shared_ptr<ParameterUse>, 4> uses;  // in the order of LstmWeights

  void take(const at::Tensor& sums, const at::Tensor& inputs, const at::Tensor& hidden_before) const {
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (uses[i] == nullptr) continue;
      uses[i]->gradient = sums;
      if (i == 0) uses[i]->input = inputs.detach();
      if (i == 1) uses[i]->input = hidden_before;
      if (i < 2) uses[i]->version = uses[i]->input._version();
    }
  }
};

/// Null: none is taken down.
const TappedWeights* tapped_weights(SampleTap& tap, const LstmWeights& weights) {
  auto tapped = std::make_shared<TappedWeights>();
  const std::array<at::Tensor, 4> values = {weights.input, weights.hidden, weights.input_bias,
                                            weights.hidden_bias};
  bool any = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto* parameter = tap.parameter_of(values[i]);
    if (parameter == nullptr) continue;
    using Kind = ParameterUse::Kind;
    tapped->uses[i] = tap.expect({.kind = i < 2 ? Kind::product : Kind::shift,
                                  .parameter = parameter,
                                  .shape = {1, values[i].size(0)}});
    any = true;
  }
  if (!any) return nullptr;
  tap.keep(tapped);
  return tapped.get();
}

class LstmLayer : public torch::autograd::Function<LstmLayer> {
 public:
  static tensor_list forward(AutogradContext* context, const at::Tensor& inputs, const at::Tensor& hidden0,
                             const at::Tensor& cell0, const at::Tensor& input_weight,
                             const at::Tensor& hidden_weight, const at::Tensor& input_bias,
                             const at::Tensor& hidden_bias, const std::vector<std::int64_t>& sizes,
                             const TappedWeights* tapped) {
    at::Tensor gates = at::addmm(input_bias + hidden_bias, inputs, input_weight.t());
    const auto width = hidden_weight.size(1);
    at::Tensor cells = at::empty({inputs.size(0), width}, gates.options());
    at::Tensor outputs = at::empty({inputs.size(0), width}, gates.options());
    const at::Tensor start_hidden = hidden0.contiguous();
    const at::Tensor start_cell = cell0.contiguous();
    at::Tensor last_hidden = start_hidden.clone();
    at::Tensor last_cell = start_cell.clone();
    std::int64_t offset = 0;
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      at::Tensor sums = gates.narrow(0, offset, sizes[t]);
      at::Tensor cell = cells.narrow(0, offset, sizes[t]);
      at::Tensor hidden = outputs.narrow(0, offset, sizes[t]);
      sums.addmm_(before_step(outputs, start_hidden, t, offset, sizes), hidden_weight.t());
      step_forward(sums, before_step(cells, start_cell, t, offset, sizes), cell, hidden);
      const std::int64_t going_on = t + 1 < sizes.size() ? sizes[t + 1] : 0;
      const std::int64_t ending = sizes[t] - going_on;
      last_hidden.narrow(0, going_on, ending).copy_(hidden.narrow(0, going_on, ending));
      last_cell.narrow(0, going_on, ending).copy_(cell.narrow(0, going_on, ending));
      offset += sizes[t];
    }
    context->save_for_backward(
        {inputs, start_hidden, start_cell, input_weight, hidden_weight, gates, cells, outputs});
    context->saved_data["sizes"] = sizes;
    context->saved_data["tapped"] = reinterpret_cast<std::int64_t>(tapped);
    return {outputs, last_hidden, last_cell};
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &inputs = saved[0], &start_hidden = saved[1], &start_cell = saved[2];
    const at::Tensor &input_weight = saved[3], &hidden_weight = saved[4];
    const at::Tensor &activations = saved[5], &cells = saved[6], &outputs = saved[7];
    const auto sizes = context->saved_data["sizes"].toIntVector();

    const at::Tensor above = gradients[0].contiguous();
    at::Tensor carried = gradients[1].clone(at::MemoryFormat::Contiguous);
    at::Tensor cell_gradient = gradients[2].clone(at::MemoryFormat::Contiguous);
    at::Tensor sums = at::empty_like(activations);
    at::Tensor hidden_before = at::empty_like(outputs);
    std::int64_t offset = outputs.size(0);
    for (std::size_t t = sizes.size(); t-- > 0;) {
      offset -= sizes[t];
      at::Tensor part = sums.narrow(0, offset, sizes[t]);
      at::Tensor through = cell_gradient.narrow(0, 0, sizes[t]);
      at::Tensor later = carried.narrow(0, 0, sizes[t]);
      const auto step =
          part.scalar_type() == at::kDouble ? &step_backward_as<double> : &step_backward_as<float>;
      step(part, through, above.narrow(0, offset, sizes[t]), later, activations.narrow(0, offset, sizes[t]),
           before_step(cells, start_cell, t, offset, sizes), cells.narrow(0, offset, sizes[t]));
      at::mm_out(later, part, hidden_weight);
      hidden_before.narrow(0, offset, sizes[t]).copy_(before_step(outputs, start_hidden, t, offset, sizes));
    }
    const at::Tensor inputs_gradient =
        context->needs_input_grad(0) ? at::mm(sums, input_weight) : at::Tensor();
    const auto* tapped = reinterpret_cast<const TappedWeights*>(context->saved_data["tapped"].toInt());
    if (tapped != nullptr) {
      tapped->take(sums, inputs, hidden_before);
      return {inputs_gradient, carried,      cell_gradient, at::Tensor(), at::Tensor(),
              at::Tensor(),    at::Tensor(), at::Tensor(),  at::Tensor()};
    }
    const at::Tensor bias = sums.sum(0);
    return {inputs_gradient,
            carried,
            cell_gradient,
            at::mm(sums.t(), inputs),
            at::mm(sums.t(), hidden_before),
            bias,
            bias.clone(),
            at::Tensor(),
            at::Tensor()};
  }
};

/// As at::lstm() on a GPU, which looks for the weights at the beginning of a storage: where they are parts of
/// flat memory it copies them in each call, with a warning.
std::tuple<at::Tensor, at::Tensor, at::Tensor> cudnn_lstm(const at::Tensor& inputs,
                                                          const std::vector<std::int64_t>& batch_sizes,
                                                          const at::Tensor& hidden, const at::Tensor& cell,
                                                          const std::vector<at::Tensor>& weights,
                                                          const at::Tensor& buffer) {
  constexpr std::int64_t kLstm = 2;  // CUDNN_LSTM
  auto [outputs, last_hidden, last_cell, reserve, used] = at::_cudnn_rnn(
      inputs, weights, static_cast<std::int64_t>(weights.size()), buffer, hidden.contiguous(),
      cell.contiguous(), kLstm, hidden.size(2), 0, 1, false, 0.0, true, false, batch_sizes, {});
  return {outputs, last_hidden, last_cell};
}

/// By LibTorch's operators: in a device's memory, or where the own kernels are off.
LstmResult library_lstm(const at::Tensor& inputs, const std::vector<std::int64_t>& batch_sizes,
                        const LstmState& start, const LstmWeights& weights) {
  const auto running = batch_sizes.empty() ? 0 : batch_sizes[0];
  if (running == 0) return {at::empty({0, weights.hidden.size(1)}, inputs.options()), start};
  const auto before = [&](const at::Tensor& state) { return state.narrow(0, 0, running).unsqueeze(0); };
  const std::vector<at::Tensor> parts = {weights.input, weights.hidden, weights.input_bias,
                                         weights.hidden_bias};
  const auto [outputs, hidden, cell] =
      inputs.is_cuda() && at::cudnn_is_acceptable(inputs)
          ? cudnn_lstm(inputs, batch_sizes, before(start.hidden), before(start.cell), parts,
                       lstm_buffer(weights))
          : at::lstm(inputs, at::tensor(batch_sizes), {before(start.hidden), before(start.cell)}, parts, true,
                     1, 0.0, false, false);
  const auto after = [&](const at::Tensor& last, const at::Tensor& first) {
    return at::cat({last.squeeze(0), first.narrow(0, running, first.size(0) - running)});
  };
  return {outputs, {after(hidden, start.hidden), after(cell, start.cell)}};
}

}  // namespace

LstmResult lstm(const at::Tensor& inputs, const std::vector<std::int64_t>& batch_sizes,
                const LstmState& start, const LstmWeights& weights) {
  const ProductScope in_full_precision(
      std::nullopt);  // a step's errors would be carried through all later ones
  auto* tap = SampleTap::open();
  if (tap == nullptr && (!inputs.is_cpu() || !own_kernels_are_on()))
    return library_lstm(in_full(inputs), batch_sizes, start, weights);
  const TappedWeights* tapped = tap != nullptr ? tapped_weights(*tap, weights) : nullptr;
  const auto results =
      LstmLayer::apply(in_full(inputs), start.hidden, start.cell, weights.input, weights.hidden,
                       weights.input_bias, weights.hidden_bias, batch_sizes, tapped);
  return {results[0], {results[1], results[2]}};
}

std::vector<Parameter> lstm_parameters(const std::string& name, std::int64_t layers, std::int64_t inputs,
                                       std::int64_t hidden, double bound) {
  std::vector<Parameter> parameters;
  const Initialisation init{Initialisation::Kind::uniform, bound};
  const auto add = [&](const char* part, std::int64_t layer, const Shape& shape) {
    parameters.push_back({.name = fmt::format("{}.{}_l{}", name, part, layer),
                          .value = at::empty(shape).requires_grad_(),
                          .init = init,
                          .before_next = std::string_view(part) != "bias_hh"});
  };
  for (std::int64_t layer = 0; layer < layers; ++layer) {  // in the order of lstm_buffer()
    add("weight_ih", layer, {4 * hidden, layer == 0 ? inputs : hidden});
    add("weight_hh", layer, {4 * hidden, hidden});
    add("bias_ih", layer, {4 * hidden});
    add("bias_hh", layer, {4 * hidden});
  }
  return parameters;
}

LstmWeights lstm_weights(const std::vector<Parameter>& parameters, std::size_t first, std::int64_t layer) {
  const std::size_t at = first + 4 * static_cast<std::size_t>(layer);
  return {parameters[at].value, parameters[at + 1].value, parameters[at + 2].value, parameters[at + 3].value};
}

double lstm_flops(double tokens, std::int64_t layers, std::int64_t inputs, std::int64_t hidden) {
  const auto h = static_cast<double>(hidden);
  double flops = 0.0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const double into = layer == 0 ? static_cast<double>(inputs) : h;
    flops += tokens * (8.0 * h * (into + h) + 30.0 * h);
  }
  return flops;
}

}  // namespace dtrain::models
