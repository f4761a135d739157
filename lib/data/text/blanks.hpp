#pragma once

#include <span>
#include <string>

namespace dtrain::data {

/// The text with a space in place of each of `blanks` (see TokenizerInfo::blanks).
std::string with_spaces(std::string text, std::span<const std::string> blanks);

}  // namespace dtrain::data
