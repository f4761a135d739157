#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/plugins/plugin.hpp"

namespace dtrain::models {

/// All that plug-ins have added to this process, in which LibTorch keeps their operators too.
const Additions& additions();

/// Adds what one plug-in brings. Throws Error (exit code 2) naming `file` where a name is taken, or is none,
/// and then adds nothing.
void add_from_plugin(const std::string& file, const Additions& more);

/// Null where no plug-in has a loss of that name.
const AddedLoss* find_added_loss(const std::string& name);

/// `model` with the loss of a plug-in; its layers and inputs are the same. What it counts as right is the
/// model's own where the loss says nothing of it.
std::unique_ptr<Model> with_added_loss(std::unique_ptr<Model> model, const AddedLoss& loss);

}  // namespace dtrain::models
