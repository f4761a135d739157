#pragma once

#include <span>
#include <string>

namespace dtrain {

/// `0-3,8` for {0, 1, 2, 3, 8}, which ascend: the way the kernel writes cores.
std::string number_list(std::span<const int> numbers);

}  // namespace dtrain
