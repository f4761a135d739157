#include "comm/label.hpp"

#include <fmt/core.h>

namespace dtrain::comm {

std::string Label::text() const { return fmt::format("{} number {} of group {}", operation, number, group); }

}  // namespace dtrain::comm
