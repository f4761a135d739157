#pragma once

#include "plan/memory_estimate.hpp"

namespace dtrain::plan {

/// A rank's micro-batches in a step, where all copies have as many, and at least one.
int micro_batches_of_rank(const Footprint& footprint);

/// What ranks that make gradients together read of each other, of which each is charged its share, in
/// elements; 0: they do not.
double factor_elements(const Footprint& footprint, const models::Model& model);

/// Gradients of parameters that are made beside the place where they are collected, in bytes. A step's first
/// micro-batch may write there; a later one's gradient is added, and so is made beside. Reproducible sums
/// collect each micro-batch's in a place of its own.
class GradientsBeside {
 public:
  GradientsBeside(const Footprint& footprint, const models::Model& model);

  /// Of one layer, while they are made. `largest`: elements of its largest trained tensor.
  double at_once(const models::Cost& cost, double largest) const;
  /// Kept until the step's end instead of a gradient: what it is made from.
  double held_back(const models::Cost& cost) const;

 private:
  double in_bytes(double of_floats) const;

  double element_;
  bool converts_;  // gradients in half precision to those in full
  bool own_kernels_;
  int micro_batches_;
  bool adds_up_;     // several, into one place, or LibTorch's kernels do
  bool holds_back_;  // see StepMemory
  bool none_;
};

/// The gradient of the rows that a step uses of the first layer's table, in elements; 0: that table's
/// gradient, if there is one, is dense.
double gradient_of_rows(const Footprint& footprint, const models::Model& model,
                        const models::Shape& sample_shape);

/// Whether a network of one stage keeps the memory of all layers' gradients (models::DirectNetwork).
bool computes_directly(const Footprint& footprint, const models::Model& model);

}  // namespace dtrain::plan
