#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/model.hpp"
#include "parallel/gradients/per_sample/clipped_sum.hpp"
#include "parallel/gradients/per_sample/layer_rules.hpp"
#include "parallel/gradients/per_sample/parameter_uses.hpp"
#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// Runs micro-batches through a whole model and back, clipping each sample's gradient: one forward pass, one
/// backward pass, and the norms of all samples at once. Needs a LayerRule for each layer.
class SampleWalk {
 public:
  /// Why this model must be run sample by sample instead; nothing: it need not.
  static std::optional<std::string> obstacle(models::Model& model);

  /// Elements of gradients by sample that it keeps of so many samples, and of what it finds their norms in,
  /// at most.
  static double most_elements(const models::Model& model, std::int64_t samples);

  explicit SampleWalk(models::Model& model);

  /// Adds what each of the samples adds to the gradient, clipped. Returns their loss.
  models::LossSums add(const Samples& samples, const models::Context& context,
                       const models::TrainingLoss& how, ClippedSum& sum);

 private:
  void differentiate(const models::Tensors& outputs, const models::LossSums& loss, at::Tensor& squares);
  void require_all_taken(const ParameterUses& uses) const;

  models::Model& model_;
  std::unique_ptr<models::SampleTap> tap_;  // the rules refer to it
  std::vector<std::unique_ptr<LayerRule>> rules_;
  std::vector<models::Parameter*> tapped_;  // trained parameters of layers that go through the tap
};

}  // namespace dtrain::parallel
