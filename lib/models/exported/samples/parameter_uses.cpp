#include "models/exported/samples/parameter_uses.hpp"

#include <algorithm>

#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

bool is_parameter(const PlannedProgram& planned, ValueId value) {
  const auto* input = planned.input_of(value);
  return input != nullptr && input->kind == GraphInput::Kind::parameter;
}

/// The node that made a value; null: an input.
const Node* maker_of(const Graph& graph, ValueId value) {
  const auto makes = [&](const Node& node) { return has_one_result(node) && result_of(node) == value; };
  const auto place = std::ranges::find_if(graph.nodes, makes);
  return place == graph.nodes.end() ? nullptr : &*place;
}

bool swaps_both_dims(const Node& node) {
  if (calls(node, "t") || calls(node, "numpy_T")) return true;
  if (calls(node, "transpose")) {
    const auto one = number_of(node, "dim0");
    const auto other = number_of(node, "dim1");
    return one && other && (*one + 2) % 2 != (*other + 2) % 2;
  }
  if (!calls(node, "permute")) return false;
  const auto* dims = node.find("dims");
  return dims != nullptr && dims->sizes.size() == 2 && !dims->sizes[0].value &&
         (dims->sizes[0].number + 2) % 2 == 1;
}

}  // namespace

std::optional<std::string> symbol_of_samples(const PlannedProgram& planned) {
  std::optional<std::string> found;
  for (const ValueId input : planned.plan.user_inputs) {
    const auto& facts = planned.program.graph()[input].tensor;
    const auto symbol = facts && !facts->sizes.empty() ? facts->sizes[0].symbol() : std::nullopt;
    if (!symbol || (found && *symbol != *found)) return std::nullopt;
    found = symbol;
  }
  return found;
}

bool turns_parameter(const PlannedProgram& planned, const Node& node) {
  const auto self = tensor_of(node, "self");
  if (!self || !is_parameter(planned, *self) || !has_one_result(node)) return false;
  return planned.program.graph()[*self].tensor->sizes.size() == 2 && swaps_both_dims(node);
}

std::vector<UsedParameter> parameters_of(const PlannedProgram& planned, const Node& node) {
  const auto& graph = planned.program.graph();
  std::vector<UsedParameter> found;
  for (const auto& [name, argument] : node.inputs) {
    for (const auto& value : argument.values) {
      if (!value) continue;
      if (is_parameter(planned, *value)) {
        found.push_back({.argument = name, .parameter = *value});
      } else if (planned.input_of(*value) == nullptr) {
        const auto* maker = maker_of(graph, *value);
        if (maker != nullptr && turns_parameter(planned, *maker))
          found.push_back({.argument = name, .parameter = *tensor_of(*maker, "self"), .turned = true});
      }
    }
  }
  return found;
}

}  // namespace dtrain::models::exported
