#pragma once

#include <string>

#include "topology/fabric.hpp"

namespace dtrain::app {

/// Reads the file given to `--emulate`. Throws Error (exit code 2) naming file and line where it is not TOML,
/// or has a key or value that means nothing. Which ranks there are it does not know: Fabric::validate() does.
topology::Fabric read_fabric(const std::string& file);

/// The same from text that came from `origin`.
topology::Fabric parse_fabric(const std::string& text, const std::string& origin);

}  // namespace dtrain::app
