#include "data/formats/text_files.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "data/text/unicode.hpp"

namespace dtrain::data {

std::string_view base_name(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

bool is_blank(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint found = code_point_at(text, at);
    if (kind_of(found.value) != CharacterKind::space) return false;
    at += found.bytes;
  }
  return true;
}

void require_text(std::string_view text, const std::string& origin) {
  require_utf8(text, origin);
  if (is_blank(text)) throw data_error("is an empty document", origin, "remove it, or give it its text");
}

std::vector<std::string> lines_of(const OriginalFile& file, BlankLines blank) {
  require_utf8(file.content, file.origin);
  std::vector<std::string> lines;
  std::string_view rest = without_byte_order_mark(file.content);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    if (blank == BlankLines::refused && is_blank(line))
      throw data_error(fmt::format("has nothing in line {}", lines.size()), file.origin,
                       "remove the line, and what belongs to it in other files");
  }
  if (lines.empty()) throw data_error("holds no line", file.origin, "give at least one");
  return lines;
}

}  // namespace dtrain::data
