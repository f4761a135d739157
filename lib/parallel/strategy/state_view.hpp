#pragma once

#include "models/model.hpp"
#include "optim/optimizer.hpp"
#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// The model that the copies of a strategy agree on, and the state of its optimizer: what saving, resuming,
/// recovery and evaluation see. Borrowed from the strategy, and valid until its next step.
struct StateView {
  FlatParameters& parameters;
  models::Model& model;  ///< Its parameters are views of `parameters`; it has the buffers as well.
  optim::Optimizer& optimizer;
};

}  // namespace dtrain::parallel
