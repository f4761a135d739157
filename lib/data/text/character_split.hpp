#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::data {

/// One token per character (code point) of valid UTF-8, case and white space kept; appended to `tokens`,
/// which refer to `text`.
void split_characters(std::string_view text, std::vector<std::string_view>& tokens);

/// The characters one after another.
std::string join_characters(const std::vector<std::string_view>& tokens);

}  // namespace dtrain::data
