#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "models/compute/kernel_scope.hpp"

namespace dtrain::models {

struct TrainingLoss;  // models/model.hpp

/// While it lives, what this thread's forward passes give goes to Model::training_loss() of the same model at
/// once, with fused kernels: a last layer whose output is a product may give its two factors instead, and the
/// loss computes the product piece by piece, so that it never lies in memory as a whole.
class LossScope {
 public:
  explicit LossScope(bool takes_factors);
  ~LossScope();
  LossScope(const LossScope&) = delete;
  LossScope& operator=(const LossScope&) = delete;

 private:
  bool before_;
};

/// Whether a loss may take factors with these: not in fp16, where gradients are computed in the forward pass,
/// which does not know the loss's scale.
bool loss_may_take_factors(Kernels kernels, std::optional<c10::ScalarType> half, const TrainingLoss& how);

/// Whether it does here.
bool loss_takes_factors();

}  // namespace dtrain::models
