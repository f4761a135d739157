#pragma once

#include <string>
#include <string_view>

namespace dtrain {

/// dtrain's version, `0.1.0`, as CMakeLists.txt states it.
std::string_view version();

/// What the linker has written into this program to tell it from every other build (the ELF note GNU
/// build-id), in hexadecimal; `none` where it has written nothing.
std::string build_id();

}  // namespace dtrain
