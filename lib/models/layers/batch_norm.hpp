#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/batch_norm.hpp"
#include "models/layer.hpp"

namespace dtrain::models {

/// Batch normalisation of images: each channel minus its mean, over its standard deviation, times weight plus
/// bias. In training with the statistics of the micro-batch, which also join the step's sums of the running
/// ones; in evaluation with the running ones. One pass also adds a residual and applies the ReLU.
/// Source: Ioffe & Szegedy, "Batch Normalization", ICML 2015; names, momentum and epsilon are PyTorch's.
struct BatchNorm {
  static constexpr double kMomentum = 0.1;
  static constexpr double kEpsilon = 1e-5;

  std::size_t parameter = 0;  ///< Where NAME.weight lies in its layer's parameters; the bias follows.
  std::size_t buffer = 0;     ///< NAME.running_mean; running_var and num_batches_tracked follow.
  double epsilon = kEpsilon;  ///< Added to the variance.

  /// Adds the parameters (1 and 0) and buffers (0, 1 and 0) of a normalisation called NAME to a layer's.
  static BatchNorm add(const std::string& name, std::int64_t channels, std::vector<Parameter>& parameters,
                       std::vector<Buffer>& buffers, Slicing slicing = Slicing::none);

  /// Leaves this rank's part of the channels.
  void slice(Range part, std::vector<Parameter>& parameters, std::vector<Buffer>& buffers) const;
};

/// What batch_norm() works on besides its state.
struct BatchNormInput {
  at::Tensor input;     ///< [N, C, H, W], on the CPU.
  at::Tensor residual;  ///< Undefined, or of the input's shape: added before the ReLU.
  kernels::Then then = kernels::Then::nothing;
};

/// The normalised images [N, C, H, W], channels last in memory. A channel of one value has variance 0 and
/// takes no part in the running statistics. Differentiable once.
at::Tensor batch_norm(const BatchNormInput& what, const BatchNorm& place,
                      const std::vector<Parameter>& parameters, std::vector<Buffer>& buffers,
                      const Context& context);

}  // namespace dtrain::models
