#pragma once

#include <memory>

#include "models/exported/operation.hpp"

namespace dtrain::models::exported {

/// An LSTM or GRU of several layers with dropout between them, layer by layer, with dtrain's masks. Null
/// where there is no dropout. Throws Error (exit code 2) for packed sequences with dropout.
std::unique_ptr<Operation> recurrent_operation(const Node& node, const Scope& scope);

}  // namespace dtrain::models::exported
