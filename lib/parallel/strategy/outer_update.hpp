#pragma once

#include <ATen/core/Tensor.h>

#include "core/slice.hpp"

namespace dtrain::parallel {

/// The update that follows an average of copies: what the copies have changed since the last one, with its
/// sign turned, is a gradient, and Nesterov's method makes a step with it. With `outer` the values that all
/// copies began the round with: difference = outer - average, momentum = mu momentum + difference, outer =
/// outer - rate (difference + mu momentum). All copies begin the next round with `outer`. A rate of 1 without
/// momentum leaves the average. Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of
/// Language Models", 2023.
class OuterUpdate {
 public:
  struct Config {
    double learning_rate = 0.7;
    double momentum = 0.9;  ///< In [0, 1).
  };
  /// For as many values as `like` [n], of its type and device.
  OuterUpdate(const Config& config, const at::Tensor& like);

  /// A round begins with these values [n].
  void begin(const at::Tensor& values);

  /// Replaces `values` [n], the average of all copies after a round, by what the next round begins with.
  void apply(at::Tensor& values) { apply(values, {0, values.numel()}); }
  /// The same of a part of them alone.
  void apply(at::Tensor& values, const Range& part);

  /// [n], what the copies have agreed on last.
  const at::Tensor& agreed() const { return outer_; }

  /// [n]; writing to it restores it.
  const at::Tensor& momentum() const { return momentum_; }

 private:
  Config config_;
  at::Tensor outer_;
  at::Tensor momentum_;
};

}  // namespace dtrain::parallel
