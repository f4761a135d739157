#include "models/exported/planning/planned_program.hpp"

#include <utility>

#include "models/exported/operations/own_operations.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/planning/kept_values.hpp"

namespace dtrain::models::exported {

PlannedProgram::PlannedProgram(const std::string& file, Dropout how) : program(file), dropout(how) {
  program.understand([this] {
    plan = make_plan(program.graph());
    kept = kept_values(program.graph(), plan);
    in_training = program.was_in_training() || exported_in_training(program.graph());
    count_uses();
  });
}

void PlannedProgram::count_uses() {
  const Graph& graph = program.graph();
  for (const GraphInput& input : graph.inputs) inputs_.emplace(input.value, &input);
  bool wants_channels_last = false;
  std::set<ValueId> of_convolutions;
  for (const Run& run : plan.runs) {
    for (const Step& step : run.steps) {
      const Node& node = graph.nodes[step.node];
      const bool enlarges = calls(node, "conv_transpose2d");
      wants_channels_last = wants_channels_last || enlarges || calls(node, "batch_norm");
      for (const auto& [name, argument] : node.inputs) {
        for (const auto& value : argument.values) {
          const auto* input = value ? input_of(*value) : nullptr;
          if (input == nullptr) continue;
          const bool parameter = input->kind == GraphInput::Kind::parameter;
          const auto& known_as = parameter ? program.first_name(input->name) : input->name;
          ++uses_[known_as];
          if (plan.trained.contains(*value)) trained_.insert(known_as);
          if (name == "weight" && (enlarges || calls(node, "conv2d"))) of_convolutions.insert(*value);
        }
      }
    }
  }
  if (wants_channels_last) channels_last_ = std::move(of_convolutions);
}

const GraphInput* PlannedProgram::input_of(ValueId value) const {
  const auto place = inputs_.find(value);
  return place == inputs_.end() ? nullptr : place->second;
}

std::size_t PlannedProgram::uses_of(const std::string& name) const {
  const auto place = uses_.find(name);
  return place == uses_.end() ? 0 : place->second;
}

}  // namespace dtrain::models::exported
