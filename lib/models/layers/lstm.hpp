#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/layer.hpp"

namespace dtrain::models {

/// One LSTM layer's parameters, as PyTorch has them: gates input, forget, cell, output.
struct LstmWeights {
  at::Tensor input;        ///< weight_ih [4 hidden, inputs]
  at::Tensor hidden;       ///< weight_hh [4 hidden, hidden]
  at::Tensor input_bias;   ///< bias_ih [4 hidden]
  at::Tensor hidden_bias;  ///< bias_hh [4 hidden]
};

struct LstmState {
  at::Tensor hidden;  ///< [n, hidden]
  at::Tensor cell;    ///< [n, hidden]
};

struct LstmResult {
  at::Tensor outputs;  ///< [tokens, hidden], packed.
  LstmState last;      ///< After each sequence's own last step.
};

/// One layer over packed sequences (packing.hpp) as a single node of the graph: one product for the inputs of
/// all steps, one per step for the hidden state, and in backward one per weight over all steps. LibTorch's
/// packed LSTM adds up the weights' gradients step by step.
/// Shapes: `inputs` [tokens, inputs]; `start` [n, hidden] in packed order, n >= batch_sizes[0].
LstmResult lstm(const at::Tensor& inputs, const std::vector<std::int64_t>& batch_sizes,
                const LstmState& start, const LstmWeights& weights);

/// Parameters NAME.weight_ih_lK, weight_hh_lK, bias_ih_lK, bias_hh_lK for K below `layers`, each from
/// U(-bound, bound).
std::vector<Parameter> lstm_parameters(const std::string& name, std::int64_t layers, std::int64_t inputs,
                                       std::int64_t hidden, double bound);

/// Those of layer `layer`; `first` is the place of the first layer's first among `parameters`.
LstmWeights lstm_weights(const std::vector<Parameter>& parameters, std::size_t first, std::int64_t layer);

/// Forward FLOPs of all layers for `tokens` steps.
double lstm_flops(double tokens, std::int64_t layers, std::int64_t inputs, std::int64_t hidden);

}  // namespace dtrain::models
