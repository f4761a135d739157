#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <string>

#include "models/model.hpp"
#include "parallel/pipeline/segments.hpp"

namespace dtrain::parallel {

/// An mlp of the registry, small, for classification of [n, 12] into 3 classes.
inline std::unique_ptr<models::Model> small_model(const std::string& hidden = "16,8") {
  auto model = models::find_model("mlp").make(
      {.task = "table_classification", .sample_shape = {12}, .classes = 3}, {{"hidden", hidden}});
  model->initialise(7);
  return model;
}

/// All layers of a model as one stage.
inline SegmentWalk whole_walk(models::Model& model, Segments segments = {}) {
  return {model, {0, static_cast<std::int64_t>(model.layers().size())}, std::move(segments)};
}

/// Forward, loss and back. `model`: the one that `walk` runs.
inline void forward_and_back(const models::Model& model, const SegmentWalk& walk, const at::Tensor& inputs,
                             const at::Tensor& targets) {
  auto passed = walk.forward({inputs}, {});
  walk.backward(passed, model.loss(passed.outputs(), targets).loss);
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
