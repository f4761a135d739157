#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::app {

/// The candidate that `word` was probably meant to be; empty when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace dtrain::app
