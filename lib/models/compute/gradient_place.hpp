#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "models/compute/product_factors.hpp"
#include "models/compute/row_gradients.hpp"
#include "models/compute/step_memory.hpp"

namespace dtrain::models {

struct Parameter;  // models/layer.hpp

/// Where the layers leave the gradient of one parameter, and what they may keep for it between the
/// micro-batches of a step. A collector of gradients owns the place and decides how the gradient comes; the
/// layers use what they find. The gradient of a parameter without a place comes in .grad, in memory of its
/// own.
///
/// While it exists it is the parameter's only place, and Parameter::place points to it.
class GradientPlace {
 public:
  /// `parameter` must outlive the place, and stay where it is. Throws Error where it has a place already.
  explicit GradientPlace(Parameter& parameter) : GradientPlace(parameter, nullptr, nullptr) {}
  /// For a gradient that comes by rows: backward appends each micro-batch's to `rows`, borrowed, and leaves
  /// .grad alone. Throws Error also where the layer cannot give it so (Parameter::by_rows).
  GradientPlace(Parameter& parameter, RowGradients& rows) : GradientPlace(parameter, &rows, nullptr) {}
  /// For the weight of a linear layer: backward leaves each micro-batch's `factors`, borrowed, and neither
  /// the weight's gradient nor the bias's.
  GradientPlace(Parameter& weight, ProductFactors& factors) : GradientPlace(weight, nullptr, &factors) {}
  ~GradientPlace();
  GradientPlace(const GradientPlace&) = delete;
  GradientPlace& operator=(const GradientPlace&) = delete;

  // For the collector.

  /// Memory in the parameter's shape that the next gradient may be written to, instead of memory of its own.
  void offer(at::Tensor memory) {
    withdraw();
    offered_ = std::move(memory);
  }
  void withdraw() {
    offered_.reset();
    left_.reset();
  }
  /// So many micro-batches follow, between which the parameter's value stays as it is.
  void begin_step(int micro_batches) { memory_.emplace(micro_batches); }
  void end_step() { memory_.reset(); }

  // For the layers.

  /// What was offered, for one gradient: the tensor to write to and to return as the gradient, or an
  /// undefined one.
  at::Tensor take();
  /// Of a parameter with two uses: the gradient that one of them has written to what it took and has
  /// returned, until the collector has it. A use whose backward comes behind that one's may add its own
  /// gradient there and return none. Undefined: there is none.
  const at::Tensor& left() const { return left_; }
  /// Null: no step of several micro-batches runs.
  StepMemory* step_memory() { return memory_ ? &*memory_ : nullptr; }
  /// Null: the gradient is wanted dense.
  RowGradients* rows() const { return rows_; }
  /// Null: the gradient is wanted, not what it is made from.
  ProductFactors* factors() const { return factors_; }

 private:
  GradientPlace(Parameter& parameter, RowGradients* rows, ProductFactors* factors);

  Parameter& parameter_;
  RowGradients* rows_;
  ProductFactors* factors_;
  at::Tensor offered_;
  at::Tensor left_;  // the same memory by another name: autograd takes over what has no other references
  std::optional<StepMemory> memory_;
};

}  // namespace dtrain::models
