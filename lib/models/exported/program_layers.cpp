#include "models/exported/program_layers.hpp"

#include <algorithm>

namespace dtrain::models::exported {

MadeLayers make_layers(const std::shared_ptr<const PlannedProgram>& planned) {
  MadeLayers made;
  auto& layers = made.layers;
  for (std::size_t run = 0; run < planned->plan.runs.size(); ++run)
    layers.push_back(std::make_unique<ProgramLayer>(planned, run, layers));
  const auto all = [&](auto&& own) {
    return std::ranges::any_of(layers,
                               [&](const auto& one) { return own(dynamic_cast<ProgramLayer&>(*one)); });
  };
  auto& first = dynamic_cast<ProgramLayer&>(*layers.front());
  for (const auto* input : planned->program.graph().inputs_of(GraphInput::Kind::parameter)) {
    const auto& name = planned->program.first_name(input->name);
    if (all([&](const ProgramLayer& one) { return one.owns_parameter(name); })) continue;
    first.add_unused_parameter(*input);
    made.unused.push_back(name);
  }
  for (const auto* input : planned->program.graph().inputs_of(GraphInput::Kind::buffer)) {
    if (!input->persistent || all([&](const ProgramLayer& one) { return one.owns_buffer(input->name); }))
      continue;
    // Counters of BatchNorm lie beside its statistics.
    const std::string suffix = ".num_batches_tracked";
    ProgramLayer* place = &first;
    if (input->name.ends_with(suffix)) {
      const auto statistics = input->name.substr(0, input->name.size() - suffix.size()) + ".running_mean";
      for (const auto& one : layers) {
        auto& layer = dynamic_cast<ProgramLayer&>(*one);
        if (layer.owns_buffer(statistics)) place = &layer;
      }
    }
    place->add_unused_buffer(*input);
  }
  for (const auto& one : layers) dynamic_cast<ProgramLayer&>(*one).make_operations(layers);
  return made;
}

}  // namespace dtrain::models::exported
