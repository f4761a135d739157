#include "models/exported/slicing/node_search.hpp"

#include "core/printable.hpp"
#include "models/exported/operators.hpp"

namespace dtrain::models::exported {

NodeSearch::NodeSearch(const PlannedProgram& planned) : planned_(planned) {
  const auto& runs = planned.plan.runs;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (std::size_t step = 0; step < runs[run].steps.size(); ++step) {
      const Place place{run, step};
      places_.push_back(place);
      for (const ValueId value : tensors_read(runs[run].steps[step], graph())) users_[value].push_back(place);
      for (const auto& output : node_at(place).outputs) {
        if (output.kind == Output::Kind::number) continue;
        for (const ValueId value : output.values) producers_.emplace(value, place);
      }
    }
  }
}

std::optional<Place> NodeSearch::producer(ValueId value) const {
  const auto place = producers_.find(value);
  return place == producers_.end() ? std::nullopt : std::optional(place->second);
}

std::optional<Place> NodeSearch::only_user(ValueId value) const {
  const auto& same = planned_.plan.same;
  const ValueId output = planned_.plan.output;
  const auto users = users_.find(value);
  const bool returned = value == output || same[value] == same[output];
  if (users == users_.end() || users->second.size() != 1 || returned) return std::nullopt;
  return users->second[0];
}

bool NodeSearch::is_own_parameter(const std::optional<ValueId>& value) const {
  const auto* input = value ? planned_.input_of(*value) : nullptr;
  return input != nullptr && input->kind == GraphInput::Kind::parameter &&
         planned_.uses_of(planned_.program.first_name(input->name)) == 1;
}

bool NodeSearch::is_linear(const Node& node) const {
  if (!calls(node, "linear") || !is_own_parameter(tensor_of(node, "weight"))) return false;
  const auto bias = tensor_of(node, "bias");
  return !bias || is_own_parameter(bias);
}

std::int64_t NodeSearch::extent(const Node& linear, std::size_t dim) const {
  return graph()[*tensor_of(linear, "weight")].tensor->sizes.at(dim).constant().value_or(0);
}

std::optional<std::int64_t> NodeSearch::size(ValueId value, int dim) const {
  const auto place = dim < 0 ? static_cast<std::int64_t>(dims(value)) + dim : dim;
  if (place < 0 || place >= static_cast<std::int64_t>(dims(value))) return std::nullopt;
  return graph()[value].tensor->sizes[static_cast<std::size_t>(place)].constant();
}

std::size_t NodeSearch::dims(ValueId value) const {
  const auto& facts = graph()[value].tensor;
  return facts ? facts->sizes.size() : 0;
}

std::string NodeSearch::title(const Node& node) {
  return printable(node.module.empty() ? node.name : node.module, 60);
}

}  // namespace dtrain::models::exported
