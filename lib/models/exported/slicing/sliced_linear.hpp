#pragma once

#include <memory>

#include "models/exported/operations/operation.hpp"
#include "models/exported/planning/plan.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models::exported {

/// Which part of a linear layer's outputs or inputs a rank has: elements `part` along dim `dim` of them, seen
/// in the shape `view`; [features] of a plain layer, [3, heads, width] of a joint projection.
struct FeaturePart {
  Range part;
  std::int64_t dim = 0;
  Shape view = {};
};

/// Whether a linear layer's input enters the slices there, also for others that use it, or did before.
enum class Entering { alone, for_all, done };

/// The linear layer of a step on a rank of `group`, borrowed, that has a part of its outputs, or of its
/// inputs, whose products the ranks add up. Each leaves the layer that part of its parameters.
std::unique_ptr<Operation> linear_into_slices(const Step& step, const Scope& scope, TensorGroup& group,
                                              const FeaturePart& part, Entering entering);
std::unique_ptr<Operation> linear_out_of_slices(const Step& step, const Scope& scope, TensorGroup& group,
                                                const FeaturePart& part);
/// The dropout of features, `flow`'s part of the last dim.
std::unique_ptr<Operation> dropout_in_pair(const Step& step, const Scope& scope, const Flow& flow);
/// That of [n, heads, ...], `flow`'s part of the heads.
std::unique_ptr<Operation> dropout_of_heads(const Step& step, const Scope& scope, const Flow& flow);
/// Of a value's dim the part that this rank has: `part` of each `whole` elements.
struct PartOfDim {
  std::size_t dim = 0;
  std::int64_t whole = 1;
  std::int64_t part = 1;
  std::int64_t of(std::int64_t extent) const { return extent / whole * part; }
};
/// A view, or an expand, whose result is cut so.
std::unique_ptr<Operation> reshape_of_part(const Step& step, const Scope& scope, const PartOfDim& cut);
std::unique_ptr<Operation> expansion_of_part(const Step& step, const Scope& scope, const PartOfDim& cut);
/// The parts of a joint projection, each as wide.
std::unique_ptr<Operation> split_of_part(const Step& step, const Scope& scope);
/// `operation` with a part of the third dim from the last, the heads, of a tensor at `place` that is whole.
std::unique_ptr<Operation> with_heads(std::unique_ptr<Operation> operation, std::size_t place,
                                      const Range& heads);
/// `operation` on a rank of `group`, borrowed, with a tensor at `place` that all ranks have whole, and of
/// whose gradient each finds a part in it: they add these up.
std::unique_ptr<Operation> with_entered(std::unique_ptr<Operation> operation, std::size_t place,
                                        TensorGroup& group);

}  // namespace dtrain::models::exported
