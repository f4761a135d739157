#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "data/dataset.hpp"
#include "data/loader.hpp"
#include "models/layer.hpp"

namespace dtrain::train {

/// From a batch as it is stored to the tensors a model takes: bytes of images become (b / 255 - mean) / std,
/// numbers the run's precision.
class Preparation {
 public:
  Preparation(const data::DatasetInfo& info, at::ScalarType dtype);

  /// [n, ...] of the run's dtype. May borrow the batch's memory: valid as long as the batch is.
  models::Tensors inputs(const data::Batch& batch) const;
  /// int64 [n], or the run's dtype for regression. May borrow the batch's memory.
  at::Tensor targets(const data::Batch& batch) const;

 private:
  at::ScalarType dtype_;
  std::vector<float> mean_;
  std::vector<float> deviation_;
};

}  // namespace dtrain::train
