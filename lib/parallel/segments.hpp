#pragma once

#include <cstddef>
#include <vector>

#include "models/model.hpp"

namespace dtrain::parallel {

/// Backward as a walk over segments, runs of consecutive layers. Between two segments the graph is cut: a
/// segment keeps its detached input and its output, is differentiated by hand and hands its input's gradient
/// on. Data parallelism uses one segment; layer-wise execution, recomputation and pipelines use more.
class SegmentWalk {
 public:
  /// `cuts`: indices of the layers before which the graph is cut, ascending, none at 0.
  explicit SegmentWalk(models::Model& model, std::vector<std::size_t> cuts = {});

  /// The last layer's outputs. What backward needs is kept until backward() or the next forward().
  models::Tensors forward(models::Tensors inputs, const models::Context& context);

  /// Differentiates `loss`, a scalar computed from forward()'s outputs, with respect to all parameters of the
  /// walk, last segment first. Gradients arrive in each parameter's .grad (and its hooks fire) on this
  /// thread.
  void backward(const at::Tensor& loss);

  std::size_t segment_count() const { return begins_.size(); }

 private:
  struct Kept {
    models::Tensors inputs;   // detached; those that are differentiable require gradients
    models::Tensors outputs;  // with the segment's graph
  };
  std::size_t end_of(std::size_t segment) const;

  models::Model& model_;
  std::vector<std::size_t> begins_;  // first layer of each segment
  std::vector<Kept> kept_;
};

}  // namespace dtrain::parallel
