#pragma once

#include <memory>

#include "models/exported/operation.hpp"
#include "models/exported/plan.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models::exported {

/// The operations of a pair (linear_pairs.hpp) on a rank of `group`, borrowed, that has the features `part`
/// of `features`. Each of the first two leaves the layer that part of its parameters.
std::unique_ptr<Operation> first_of_pair(const Step& step, const Scope& scope, TensorGroup& group,
                                         Range part);
std::unique_ptr<Operation> second_of_pair(const Step& step, const Scope& scope, TensorGroup& group,
                                          Range part);
std::unique_ptr<Operation> dropout_in_pair(const Step& step, const Scope& scope, const Flow& flow);

}  // namespace dtrain::models::exported
