#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace dtrain::models::exported {

/// What a layer of nn.LSTM, nn.GRU or nn.RNN is.
struct RecurrentLayer {
  enum class Kind { lstm, gru, tanh, relu };

  Kind kind = Kind::lstm;
  bool has_biases = true;
  bool bidirectional = false;
  bool batch_first = false;

  std::size_t directions() const { return bidirectional ? 2 : 1; }
};

/// As at::lstm, at::gru, at::rnn_tanh and at::rnn_relu of one layer without dropout, in a way that tells the
/// open SampleTap how each parameter is used: an LSTM by dtrain's own layer (layers/lstm.hpp), the others
/// step by step. Shapes: `inputs` [T, n, F] or, batch_first, [n, T, F]; `states` [directions, n, hidden]: the
/// hidden one, and an LSTM's cell; `weights`: of each direction weight_ih, weight_hh and, with biases,
/// bias_ih, bias_hh. Result: the outputs, as `inputs`, and the last states.
std::vector<at::Tensor> tapped_recurrent(const RecurrentLayer& layer, const at::Tensor& inputs,
                                         const std::vector<at::Tensor>& states,
                                         const std::vector<at::Tensor>& weights);

}  // namespace dtrain::models::exported
