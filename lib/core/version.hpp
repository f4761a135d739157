#pragma once

#include <string_view>

namespace dtrain {

/// dtrain's version, `0.1.0`, as CMakeLists.txt states it.
std::string_view version();

}  // namespace dtrain
