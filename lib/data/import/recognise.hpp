#pragma once

#include <span>
#include <string>

#include "data/import/stage.hpp"

namespace dtrain::data {

/// The formats that can be staged, as `--format` names them.
std::span<const char* const> format_names();

/// The format of options.from by its content, or options.format where it is given. Reads no more than the
/// beginnings of files. Throws data_error when nothing is recognised.
std::string recognise(const StageOptions& options);

}  // namespace dtrain::data
