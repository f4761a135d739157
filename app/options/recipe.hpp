#pragma once

#include <map>
#include <string>

#include "train/config/config.hpp"

namespace dtrain::app {

/// Takes what the user did not give from the recipe of config.model, where the user's choice leaves it a
/// meaning. Throws Error (exit code 2), listing the models there are, when the model is unknown.
void apply_recipe(train::RunConfig& config);

/// The same from these options. Throws Error for a name that is no option's, and for a value it does not
/// take.
void apply_recipe(const std::map<std::string, std::string>& options, train::RunConfig& config);

}  // namespace dtrain::app
