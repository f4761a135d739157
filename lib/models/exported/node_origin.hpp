#pragma once

#include <string>

#include "models/exported/graph.hpp"

namespace dtrain::models::exported {

/// `net.py:11: x = self.conv(x)` from a stack trace: the last frame of the user's own code, which is not
/// LibTorch's. Empty where there is none.
std::string line_of(const std::string& trace);

/// Sets a node's module from `KEY,PATH,TYPE;KEY,PATH,TYPE`, outermost first.
void set_module(Node& node, const std::string& stack);

}  // namespace dtrain::models::exported
