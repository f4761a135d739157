#pragma once

#include <cstddef>
#include <vector>

#include "core/slice.hpp"
#include "models/model.hpp"
#include "parallel/pipeline/layer_weights.hpp"

namespace dtrain::parallel {

/// Which layers run again in backward instead of keeping what they need (recomputation).
struct Segments {
  std::vector<std::size_t> cuts = {};  ///< Layers before which the graph is cut, ascending.
  std::size_t repeated = 0;            ///< So many first segments keep their inputs only.
};

/// The first `count` of `layers` (or as many as there are) each a segment of its own that is repeated.
Segments repeat_first(Range layers, std::int64_t count);

/// Each layer a segment of its own, of which the first `count` are repeated.
Segments each_layer(Range layers, std::int64_t count);

/// What one micro-batch left behind in forward: what backward needs.
struct Passed {
  struct Segment {
    models::Tensors inputs;   // detached; those that are differentiable require gradients
    models::Tensors outputs;  // with the segment's graph, or none where it is repeated
  };
  models::Context context;
  std::vector<Segment> segments;

  const models::Tensors& outputs() const { return segments.back().outputs; }
};

/// Backward as a walk over segments, runs of consecutive layers of one stage. Between two segments the graph
/// is cut: a segment keeps its detached input and its output, is differentiated by hand and hands its input's
/// gradient on. A whole model on one rank is one stage of one segment; layer-wise execution, recomputation
/// and pipelines use more. Several micro-batches may be on their way.
class SegmentWalk {
 public:
  /// `layers`: the stage's. `weights`, borrowed: brings each layer's weights, where each is a segment of its
  /// own; null: they are there.
  SegmentWalk(models::Model& model, Range layers, Segments segments = {}, LayerWeights* weights = nullptr);

  /// The stage's outputs are Passed::outputs(). `inputs` of a stage behind the first are differentiated.
  Passed forward(models::Tensors inputs, const models::Context& context) const;

  /// Differentiates `loss`, a scalar computed from the outputs, with respect to the stage's parameters, last
  /// segment first; gradients arrive in each parameter's .grad (and its hooks fire) on this thread. Frees
  /// what `passed` kept on the way. Returns the gradients of the stage's inputs: undefined for those without,
  /// and for all of the first stage.
  models::Tensors backward(Passed& passed, const at::Tensor& loss) const;
  /// The same from the gradients of the outputs, undefined for those without.
  models::Tensors backward(Passed& passed, const models::Tensors& output_gradients) const;

  /// What forward and backward of a micro-batch do with the weights, without computing.
  void idle_forward() const;
  void idle_back() const;

 private:
  std::size_t end_of(std::size_t segment) const;
  models::Tensors run(std::size_t segment, models::Tensors flowing, const models::Context& context) const;
  models::Tensors walk_back(Passed& passed, std::size_t segment, models::Tensors gradients) const;
  models::Tensors input_gradients(Passed::Segment& segment) const;
  void bring_forward(std::size_t segment) const;
  void bring_back(std::size_t segment) const;
  void drop(std::size_t segment, LayerWeights::Pass pass) const;

  models::Model& model_;
  Range layers_;
  std::vector<std::size_t> begins_;  // first layer of each segment
  std::size_t repeated_;
  LayerWeights* weights_;
};

}  // namespace dtrain::parallel
