#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "models/exported/planning/planned_program.hpp"

namespace dtrain::models::exported {

/// The symbol that counts samples, along the first dim of all inputs; nothing where they do not count alike.
std::optional<std::string> symbol_of_samples(const PlannedProgram& planned);

/// A parameter's place among a node's arguments.
struct UsedParameter {
  std::string argument;
  ValueId parameter = 0;
  bool turned = false;  ///< The argument is the parameter's transpose, made by a node of its own.
};

/// The parameters that a node is given, directly or transposed.
std::vector<UsedParameter> parameters_of(const PlannedProgram& planned, const Node& node);

/// Whether a node does nothing but transpose a parameter of two dims, for products.
bool turns_parameter(const PlannedProgram& planned, const Node& node);

}  // namespace dtrain::models::exported
