#pragma once

#include "models/model.hpp"

namespace dtrain::models {

/// A multi-layer perceptron: input_fc F-250, hidden_fc 250-100, output_fc 100-classes, with an activation
/// after all but the last. Samples of any shape are flattened; without classes it has one output per
/// target and a regression loss. Options: hidden (sizes, default 250,100; empty for a linear model),
/// activation (relu, tanh, gelu, sigmoid).
Registration mlp();

}  // namespace dtrain::models
