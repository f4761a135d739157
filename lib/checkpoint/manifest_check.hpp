#pragma once

#include <string>

#include "checkpoint/manifest.hpp"

namespace dtrain::checkpoint {

/// Throws Error (exit code 4), naming `file`, unless the manifest makes sense: counts in their ranges that do
/// not contradict each other, shapes whose bytes can be counted, slices that cover each element of their
/// tensor once, in files that are listed with their hashes.
void check_sense(const Manifest& manifest, const std::string& file);

}  // namespace dtrain::checkpoint
