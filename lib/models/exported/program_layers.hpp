#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/exported/program_layer.hpp"

namespace dtrain::models::exported {

struct MadeLayers {
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<std::string> unused;  ///< Parameters that the first output does not depend on: frozen.
};

/// A program's layers, with all parameters and buffers of the module's state_dict.
MadeLayers make_layers(const std::shared_ptr<const PlannedProgram>& planned);

}  // namespace dtrain::models::exported
