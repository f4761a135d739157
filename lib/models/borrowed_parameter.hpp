#pragma once

#include <ATen/core/Tensor.h>

#include "models/layer.hpp"

namespace dtrain::models {

/// A layer's use of a parameter that another layer owns: a tied weight. The borrowing layer has one for each,
/// and computes with value().
class BorrowedParameter {
 public:
  /// `parameter` must outlive the use, and stay where it is.
  explicit BorrowedParameter(Parameter& parameter) : parameter_(&parameter) {}

  Parameter& parameter() const { return *parameter_; }
  const at::Tensor& value() const { return own_leaf_.defined() ? own_leaf_ : parameter_->value; }

  /// From now on value() is a leaf of its own over the same memory: backward leaves the gradient of this use
  /// in the .grad of the leaf, not in the owner's. Returns the leaf. The values must not be moved after it.
  at::Tensor& keep_apart() {
    own_leaf_ = parameter_->value.detach().set_requires_grad(true);
    return own_leaf_;
  }
  /// From now on value() is the owner's leaf again, as at first: backward adds up both uses in its .grad.
  void join() { own_leaf_.reset(); }

 private:
  Parameter* parameter_;
  at::Tensor own_leaf_;
};

}  // namespace dtrain::models
