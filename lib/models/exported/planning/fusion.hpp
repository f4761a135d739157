#pragma once

#include <vector>

#include "models/exported/planning/memory.hpp"
#include "models/exported/planning/plan.hpp"

namespace dtrain::models::exported {

/// Puts nodes together that dtrain computes in one pass over memory, as its own models do, and leaves the
/// steps that are then part of another out:
/// - batch_norm, what is added to its result, and the ReLU of that;
/// - a ReLU and the max-pool behind it, which becomes the ReLU of the pool: the largest of each window is the
///   same, and there are fewer elements;
/// - an embedding whose only use is the mean over each text's real words, those other than 0:
///   `(embedding(ids) * real).sum(1) / real.sum(1).clamp(min=1)` with `real = (ids != 0).unsqueeze(2)`;
/// - an element-wise function of a value that nothing else uses: it may write over it.
/// `plan`: its `same` follows. Results stay as they are but for the order of sums.
void fuse_steps(const Graph& graph, std::vector<Step>& steps, Plan& plan, Memory& memory);

}  // namespace dtrain::models::exported
