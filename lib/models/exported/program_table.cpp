// A program whose first layer looks words up, as a WordTable.
#include <algorithm>
#include <limits>

#include "models/exported/program_layer.hpp"
#include "models/exported/samples/sample_rules.hpp"

namespace dtrain::models::exported {

const Parameter* ProgramLayer::table() const {
  const auto& inputs = own_run().inputs;
  if (run_ != 0 || inputs.size() != 1 || !inputs[0].value) return nullptr;
  const auto& sizes = graph()[*inputs[0].value].tensor->sizes;
  if (sizes.size() != 2 || sizes[1].constant()) return nullptr;  // it would be padded
  for (const Step& step : own_run().steps) {
    const Node& node = graph().nodes[step.node];
    if (!step.texts || step.texts != inputs[0].value) continue;
    const auto* input = planned_->input_of(node.find("weight")->values.at(0).value());
    if (input == nullptr || input->kind != GraphInput::Kind::parameter ||
        planned_->uses_of(planned_->program.first_name(input->name)) != 1)
      return nullptr;
    const auto own =
        std::ranges::find(parameters_, planned_->program.first_name(input->name), &Parameter::name);
    return own == parameters_.end() ? nullptr : &*own;
  }
  return nullptr;
}

at::Tensor ProgramLayer::ids_read(const at::Tensor& input) const { return input.to(at::kInt).contiguous(); }

std::int64_t ProgramLayer::longest() const { return std::numeric_limits<std::int64_t>::max(); }

std::string ProgramLayer::sample_obstacle() const { return sample_obstacle_of(*planned_, run_); }

}  // namespace dtrain::models::exported
