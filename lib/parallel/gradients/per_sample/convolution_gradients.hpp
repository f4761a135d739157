#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <tuple>

#include "models/compute/sample_tap.hpp"

namespace dtrain::parallel {

/// The gradients of each sample of a convolution's weight. A plain convolution of images is a product of
/// their patches with the weight, so that norms are found as those of linear layers. A transposed one is the
/// gradient of a plain one with respect to its input: its weight has the gradient of that convolution, with
/// input and output in each other's place. Any other one (groups, dilation, of one or three dims) is
/// differentiated sample by sample.
class ConvolutionGradients {
 public:
  // Elements of gradients by sample, and of patches.
  static constexpr std::int64_t kMostKept = 1 << 24;
  static constexpr std::int64_t kMostAtOnce = 1 << 18;

  explicit ConvolutionGradients(models::ParameterUse::Convolution how) : how_(std::move(how)) {}

  /// Adds to `squares`, double [n]. `input` [n, channels, ...], `gradient` of the output [n, out, ...].
  /// Of small weights the gradients are kept until forget().
  void add_squares(const at::Tensor& input, const at::Tensor& gradient, const at::Tensor& weight,
                   at::Tensor& squares);
  /// squares_of_rounding() of the sums over positions, double [n].
  static at::Tensor rounding(const at::Tensor& input, const at::Tensor& gradient, const at::Tensor& weight);
  /// Sum of the gradients, sample i times factors[i], in the weight's shape. After add_squares().
  at::Tensor weighted_sum(const at::Tensor& input, const at::Tensor& gradient, const at::Tensor& weight,
                          const at::Tensor& factors) const;
  void forget() { by_sample_.reset(); }

  /// Of one sample or more, summed: of the input, the weight and the bias, those that are wanted.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& input, const at::Tensor& gradient,
                                                          const at::Tensor& weight,
                                                          std::array<bool, 3> wanted) const;

 private:
  bool has_patches(const at::Tensor& weight) const;
  void add_one_by_one(const at::Tensor& input, const at::Tensor& gradient, const at::Tensor& weight,
                      at::Tensor& squares);
  void add_by_patches(const at::Tensor& input, const at::Tensor& out, const at::Tensor& weight,
                      at::Tensor& squares);
  void take_patches(const at::Tensor& images, const at::Tensor& weight);

  models::ParameterUse::Convolution how_;
  at::Tensor patches_;    // [samples, elements of a patch, positions]: memory for the next ones
  at::Tensor by_sample_;  // [n, elements of the weight], where that is little: the gradient of each sample
};

}  // namespace dtrain::parallel
