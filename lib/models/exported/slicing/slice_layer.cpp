#include "core/error.hpp"
#include "models/exported/own_operations.hpp"
#include "models/exported/program_layer.hpp"
#include "models/exported/slicing/linear_pairs.hpp"
#include "models/exported/slicing/sliced_linear.hpp"

namespace dtrain::models::exported {

Flow ProgramLayer::slice(TensorGroup& group, const Flow& flow) {
  const auto pairs = find_linear_pairs(*planned_);
  if (pairs.empty()) {
    throw usage_error(
        "there are no two linear layers with only an element-wise function between, which the ranks of a "
        "tensor axis could share",
        "--model " + planned_->program.file(), "use data and pipe, such as --mesh data=2,pipe=2");
  }
  const Scope scope = this->scope();
  for (const LinearPair& pair : pairs) {
    const Range part = part_of(pair.features, group.rank(), group.size());
    const auto step = [&](const LinearPair::Place& place) { return own_run().steps[place.step]; };
    const auto tensor = [&](const LinearPair::Place& place, const char* name) {
      return graph().nodes[step(place).node].find(name)->values.at(0).value();
    };
    for (const ValueId value : pair.between) {
      sliced_[value] = part.size();
      sliced_[planned_->plan.same[value]] = part.size();
    }
    if (pair.first.run == run_) {
      done_[pair.first.step].operation = first_of_pair(step(pair.first), scope, group, part);
      entered_.push_back(tensor(pair.first, "input"));
    }
    for (const auto& place : pair.dropouts) {
      // One that does nothing where the others train is LibTorch's.
      if (place.run != run_ || !drops_in_training(graph().nodes[step(place).node], planned_->in_training))
        continue;
      done_[place.step].operation = dropout_in_pair(step(place), scope, {pair.features, part});
    }
    if (pair.second.run == run_) {
      done_[pair.second.step].operation = second_of_pair(step(pair.second), scope, group, part);
      sliced_[tensor(pair.second, "weight")] = part.size();
      left_.push_back(graph().nodes[step(pair.second).node].outputs.at(0).values.at(0));
    }
  }
  return flow;
}

}  // namespace dtrain::models::exported
