#pragma once

#include <memory>
#include <vector>

#include "models/exported/operations/given.hpp"
#include "models/exported/operations/operation.hpp"
#include "models/exported/planning/plan.hpp"

namespace dtrain::models::exported {

/// Whether the program was exported in training mode: one of its nodes trains. Where none does, all follow
/// the run's mode.
bool exported_in_training(const Graph& graph);

/// Whether a dropout drops in a run's training, and is not one that was exported as switched off.
bool drops_in_training(const Node& node, bool in_training);

/// `self` in the shape `sizes`. LibTorch's view may refuse memory that dtrain's kernels have laid out; a copy
/// then does.
std::unique_ptr<Operation> reshape_operation(const Given& given, std::vector<SizeExpression> sizes);

/// dtrain's own operation for a step, or null where LibTorch's operator is called:
/// - batch_norm with running statistics: these are counted once in a step (layers/batch_norm.hpp);
/// - dropout, alone and inside attention and LSTM or GRU layers, which are taken apart for it: masks do not
///   depend on the ranks (layers/dropout.hpp);
/// - linear, conv2d, conv_transpose2d and max_pool2d, where dtrain's kernels may take them;
/// - an embedding whose words' mean is taken, and functions that may write over their input
/// (planning/fusion.hpp);
/// - view, which becomes reshape: dtrain's kernels lay images out otherwise than PyTorch's;
/// - squeeze, which does not depend on how many samples a micro-batch has.
/// Throws Error (exit code 2) for what dtrain cannot do so.
std::unique_ptr<Operation> own_operation(const Step& step, const Scope& scope, bool in_training);

}  // namespace dtrain::models::exported
