#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dtrain::models {

/// The ranks that hold the slices of one copy of a layer, as the layer sees them: what flows into and out of
/// its slices. Every call is made by all of them alike, in the same order. parallel puts communication behind
/// it.
/// Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
class TensorGroup {
 public:
  virtual ~TensorGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// `x`, which all ranks have alike, on its way into the slices: its gradient is the sum of theirs.
  virtual at::Tensor enter(const at::Tensor& x) = 0;
  /// The sum of what the slices give; the gradient of each is that of the sum.
  virtual at::Tensor leave(const at::Tensor& partial) = 0;

  /// In place and without gradient: the sum or the largest over all ranks.
  virtual void sum(at::Tensor& values) = 0;
  virtual void max(at::Tensor& values) = 0;
};

}  // namespace dtrain::models
