#pragma once

#include <torch/torch.h>

#include <memory>

#include "models/model.hpp"

namespace dtrain::parallel {

/// An mlp of the registry, small, for classification of [n, 12] into 3 classes.
inline std::unique_ptr<models::Model> small_model() {
  auto model = models::find_model("mlp").make(
      {.task = "table_classification", .sample_shape = {12}, .classes = 3}, {{"hidden", "16,8"}});
  model->initialise(7);
  return model;
}

/// Inputs [n, 12] and targets [n], the same on every rank.
struct SmallBatch {
  at::Tensor inputs;
  at::Tensor targets;
};
inline SmallBatch small_batch(std::int64_t n) {
  const auto ramp = at::arange(n * 12, at::kDouble).reshape({n, 12});
  return {at::sin(ramp * 0.37), at::remainder(at::arange(n, at::kLong), 3)};
}

}  // namespace dtrain::parallel
