#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/import/archive.hpp"

namespace dtrain::data {

/// The last part of a path.
std::string_view base_name(std::string_view name);

/// Throws data_error naming the file, and the line where there is one: not UTF-8, or nothing but white space.
void require_text(std::string_view text, const std::string& origin);

enum class BlankLines { refused, taken };

/// The lines of a file without their ends (LF or CRLF) and without a byte order mark. Throws data_error,
/// naming the line, for text that is not UTF-8 and blank lines that are refused; and for a file without
/// lines.
std::vector<std::string> lines_of(const OriginalFile& file, BlankLines blank = BlankLines::refused);

/// Whether nothing of `text` shows.
bool is_blank(std::string_view text);

}  // namespace dtrain::data
