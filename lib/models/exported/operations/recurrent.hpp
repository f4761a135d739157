#pragma once

#include <memory>

#include "models/exported/operations/operation.hpp"

namespace dtrain::models::exported {

/// An LSTM or GRU of several layers with dropout between them, layer by layer, with dtrain's masks; or one
/// that its module keeps in evaluation, where it does not drop. Null for others. `drops`: in training. Throws
/// Error (exit code 2) for packed sequences with dropout.
std::unique_ptr<Operation> recurrent_operation(const Node& node, const Scope& scope, bool drops);

/// Whether a node is an LSTM, a GRU or a plain recurrent network.
bool is_recurrent(const Node& node);
/// Whether it has padded sequences, and for each layer and direction two weights with or without two biases.
bool has_known_parameters(const Node& node);

/// A node layer by layer, as passes need it that an open SampleTap follows. `node` has known parameters.
/// `drops`: between its layers, in training.
std::unique_ptr<Operation> recurrence_by_layers(const Node& node, const Scope& scope, bool drops);

}  // namespace dtrain::models::exported
