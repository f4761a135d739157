#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "models/compute/sample_tap.hpp"
#include "models/layer.hpp"
#include "parallel/gradients/per_sample/clipped_sum.hpp"

namespace dtrain::parallel {

/// One layer in a pass over a micro-batch in which each sample's gradient is clipped by itself. The calls
/// come in this order: forward(), backward(), add_to().
class LayerRule {
 public:
  virtual ~LayerRule() = default;

  /// As Layer::run(), keeping what the others need.
  virtual models::Tensors forward(const models::Tensors& inputs, const models::Context& context) = 0;

  /// From the gradient of the output, of the sum of all samples' losses, that of the input. Adds to
  /// `squares`, double [n], the squared norm of what each sample adds to the gradients of this layer's
  /// parameters.
  virtual models::Tensors backward(const models::Tensors& gradients, at::Tensor& squares) = 0;

  /// Adds the parameters' gradients, sample i times factors[i], [n], and forgets what was kept.
  virtual void add_to(ClippedSum& sum, const at::Tensor& factors) = 0;
};

/// The rule for a layer; null: there is none. `first`: nothing needs the gradient of its input. `tap`: learns
/// how layers that are SampleTapped use their parameters, whose norms and sums are then ParameterUses' work,
/// not the rule's; it outlives the rule.
///
/// A layer without parameters is differentiated as ever. A linear layer's gradient for sample i is the
/// product of what goes in and the gradient that comes back, so that its norm follows without it, and one
/// product of all samples gives the weighted sum. Source: Goodfellow, "Efficient Per-Example Gradient
/// Computations", 2015 (arXiv:1510.01799); for inputs of several rows Li et al., "Large Language Models Can
/// Be Strong Differentially Private Learners", ICLR 2022 (ghost norms); one backward pass instead of two: Bu
/// et al., "Differentially Private Optimization on Large Model at Small Cost", ICML 2023. A convolution is
/// such a product of patches.
std::unique_ptr<LayerRule> rule_of(models::Layer& layer, bool first, models::SampleTap& tap);

}  // namespace dtrain::parallel
