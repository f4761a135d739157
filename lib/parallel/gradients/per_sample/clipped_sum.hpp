#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// A sum of gradients, each of one sample and shortened to a norm: what one sample adds is bounded.
class ClippedSum {
 public:
  /// `clip`: the largest norm of a sample's gradient, over all parameters that are trained. Both outlive
  /// this.
  ClippedSum(FlatParameters& parameters, double clip);

  void begin_step();

  /// What a gradient of this norm is multiplied by: min(1, clip / norm), and less by a few
  /// roundings, which so do not make the result longer than the clip norm.
  double factor(double norm) const;
  /// The same of squared norms, double [n] -> [n], of the parameters' type. A square that is not finite or
  /// is below 0 has factor 0, and counts.
  at::Tensor factors(const at::Tensor& squares);

  /// Adds the gradients of one sample, which are in the parameters' .grad, and forgets them there. Throws
  /// Error naming a parameter that has none: nothing would bound what a sample does to it.
  void take_sample();

  at::Tensor& values() { return values_; }  ///< [size], flat.
  /// The part of a parameter, in its shape and strides.
  at::Tensor part_of(const models::Parameter* parameter);

  /// Since begin_step(), the samples whose gradient was not finite and was left out.
  std::int64_t not_finite() const { return not_finite_; }

 private:
  FlatParameters& parameters_;
  double clip_;
  at::Tensor values_;
  std::int64_t not_finite_ = 0;
};

}  // namespace dtrain::parallel
