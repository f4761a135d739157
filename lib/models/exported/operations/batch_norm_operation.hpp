#pragma once

#include <memory>

#include "models/exported/operations/given.hpp"

namespace dtrain::models::exported {

/// BatchNorm of 2 to 5 dims with running statistics, which are those of the step (layers/batch_norm.hpp),
/// with the sum and the ReLU that follow. `in_training`: the program was exported in training mode, so that a
/// module whose flag says otherwise keeps its statistics. Throws Error (exit code 2) where two calls share
/// statistics.
std::unique_ptr<Operation> batch_norm_operation(const Step& step, const Given& given, const Scope& scope,
                                                bool in_training);

}  // namespace dtrain::models::exported
