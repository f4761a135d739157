#pragma once

#include <memory>

#include "models/exported/operations/operation.hpp"
#include "models/exported/planning/plan.hpp"

namespace dtrain::models::exported {

/// The operation that calls LibTorch's operator of a step through its dispatcher, so that autograd and
/// autocast see it. Arguments are filled in by the operator's schema. Throws Error (exit code 2) for an
/// argument that the operator does not take.
std::unique_ptr<Operation> operator_call(const Step& step, const Scope& scope);

}  // namespace dtrain::models::exported
