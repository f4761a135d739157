#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "core/slice.hpp"
#include "models/model.hpp"
#include "parallel/step/ownership.hpp"

namespace dtrain::parallel {

/// A step's gradient: what the backward pass of each micro-batch leaves in the parameters' .grad, summed over
/// the micro-batches of all ranks of a data group, and laid out as FlatParameters lays out the parameters.
/// Gradients are sums over samples; the update divides by the weight of the whole step.
class GradientSums {
 public:
  GradientSums() = default;
  virtual ~GradientSums() = default;
  GradientSums(const GradientSums&) = delete;
  GradientSums& operator=(const GradientSums&) = delete;

  /// From the next step on the ranks of the group own these micro-batches; without a call as evenly as can
  /// be.
  virtual void own(const Ownership& /*owned*/) {}

  /// Whether own_squares() are wanted of the steps that follow.
  virtual void measure_own(bool /*wanted*/) {}
  /// After finish(), where wanted: the squares of what this rank's micro-batches alone have added up to.
  virtual double own_squares() const { return 0; }

  /// Forgets the last step's gradients. `micro_batches`: how many this rank takes back before finish().
  virtual void begin_step(int micro_batches) = 0;

  /// Micro-batch `index` of the step (over all ranks) has run backward through all layers of this rank.
  virtual void taken_back(int index) = 0;

  /// Backward of a micro-batch, or of none where another rank has one more, is past a layer that uses
  /// `parameter`: a gradient that has not come is zero.
  virtual void passed(const models::Parameter* /*parameter*/) {}

  /// Whether each layer's use of a parameter that another layer owns has a sum of its own: the gradient lies
  /// in the leaf of that use, and comes to the owner as a share of its own.
  virtual bool keeps_uses_apart() const { return false; }
  /// From now on each step's gradient of `parameter` has a share from another rank.
  virtual void expect_share(const models::Parameter* parameter) = 0;
  /// That share, in the parameter's shape; once per step, from within finish().
  virtual void add_share(const models::Parameter* parameter, const at::Tensor& gradient) = 0;

  /// Completes the sums. Calls `exchange_shares`, where there is one, when ranks may hand shares over: a
  /// borrowed value's .grad is then what its owner is to get. Collective over the data group.
  virtual void finish(const std::function<void()>& exchange_shares = {}) = 0;

  /// [FlatParameters::size()]: the sums, after finish(), at least in update_parts(). Where updates_parts(),
  /// valid until a later collective of the group begins.
  virtual const at::Tensor& gradients() const = 0;
  /// Whether gradients() are the elements of update_parts() alone, one part behind the other.
  virtual bool holds_parts() const { return false; }

  /// Whether other ranks update the rest of the parameters: none may be used until all are updated.
  virtual bool updates_parts() const = 0;
  /// What this rank updates.
  virtual const std::vector<Range>& update_parts() const = 0;
  /// Where updates_parts(): what the ranks of the group share out, update_parts()[i] being this rank's part
  /// of the i-th.
  virtual std::vector<Range> shared_out() const = 0;
  /// The parts of the flat gradient that this rank vouches for in norms: disjoint over the group.
  virtual const std::vector<Range>& own_parts() const = 0;
};

}  // namespace dtrain::parallel
