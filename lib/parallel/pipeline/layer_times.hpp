#pragma once

#include <vector>

#include "models/model.hpp"

namespace dtrain::parallel {

/// Seconds that each layer takes forward and back for `inputs` (shapes of a micro-batch), the mean over a few
/// micro-batches of one step on made-up values: numbers, or ids where `ids`. Layers run with the model's
/// parameters as they are, on `device`: meanwhile the model is there.
std::vector<double> measure_layers(models::Model& model, const std::vector<models::Shape>& inputs, bool ids,
                                   at::Device device = at::kCPU);

}  // namespace dtrain::parallel
