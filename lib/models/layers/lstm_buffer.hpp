#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/lstm.hpp"

namespace dtrain::models {

/// The weights of one layer as cuDNN takes them: one buffer [4 hidden (inputs + hidden + 2)] with the matrix
/// of the inputs, that of the hidden state, the bias of the inputs and that of the hidden state. In each, the
/// gates are cuDNN's: input, forget, new memory, output, which are PyTorch's. Where they lie so in memory
/// already, as in the flat parameters (Parameter::before_next), the buffer is a view of them; else a copy.
/// Without gradient. Source: cudnnGetRNNWeightParams(), of one layer in one direction.
at::Tensor lstm_buffer(const LstmWeights& weights);

}  // namespace dtrain::models
