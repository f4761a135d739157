#pragma once

#include <cstddef>

namespace dtrain::kernels {

/// What an LSTM does between its matrix products (Hochreiter and Schmidhuber 1997, with a forget gate). Gates
/// lie as PyTorch's weights have them: input, forget, cell, output, each `width` wide. All arrays dense.
struct LstmCells {
  std::size_t rows = 0;
  std::size_t width = 0;
};

/// `gates` [rows, 4 width] holds sums and becomes their activations; from `cell_before` [rows, width] come
/// `cell` and `hidden` [rows, width].
template <class T>
void lstm_forward(T* gates, const T* cell_before, T* cell, T* hidden, const LstmCells& cells);

/// `gate_gradients` [rows, 4 width] receives the gradient of the sums. `hidden_gradient` [rows, width] is
/// what arrives from above, `carried` what arrives from the step after through the hidden state.
/// `cell_gradient` [rows, width] is the cell's from the step after and becomes that of the cell before.
template <class T>
void lstm_backward(T* gate_gradients, T* cell_gradient, const T* hidden_gradient, const T* carried,
                   const T* activations, const T* cell_before, const T* cell, const LstmCells& cells);

extern template void lstm_forward<float>(float*, const float*, float*, float*, const LstmCells&);
extern template void lstm_forward<double>(double*, const double*, double*, double*, const LstmCells&);
extern template void lstm_backward<float>(float*, float*, const float*, const float*, const float*,
                                          const float*, const float*, const LstmCells&);
extern template void lstm_backward<double>(double*, double*, const double*, const double*, const double*,
                                           const double*, const double*, const LstmCells&);

}  // namespace dtrain::kernels
