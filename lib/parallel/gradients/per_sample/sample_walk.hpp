#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/model.hpp"
#include "parallel/gradients/per_sample/clipped_sum.hpp"
#include "parallel/gradients/per_sample/layer_rules.hpp"
#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// Runs micro-batches through a whole model and back, clipping each sample's gradient: one forward pass, one
/// backward pass, and the norms of all samples at once. Needs a LayerRule for each layer.
class SampleWalk {
 public:
  /// Why this model must be run sample by sample instead; nothing: it need not.
  static std::optional<std::string> obstacle(models::Model& model);

  explicit SampleWalk(models::Model& model);

  /// Adds what each of the samples adds to the gradient, clipped. Returns their loss.
  models::LossSums add(const Samples& samples, const models::Context& context,
                       const models::TrainingLoss& how, ClippedSum& sum);

 private:
  models::Model& model_;
  std::vector<std::unique_ptr<LayerRule>> rules_;
};

}  // namespace dtrain::parallel
