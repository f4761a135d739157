#include "data/text/blanks.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace dtrain::data {
namespace {

std::string blanked(std::string text, const std::string& blank) {
  const std::size_t first = text.find(blank);
  if (blank.empty() || first == std::string::npos) return text;
  std::size_t from = first;
  std::size_t to = first;
  while (from < text.size()) {
    const std::size_t next = std::min(text.find(blank, from), text.size());
    std::copy(text.begin() + static_cast<std::ptrdiff_t>(from),
              text.begin() + static_cast<std::ptrdiff_t>(next),
              text.begin() + static_cast<std::ptrdiff_t>(to));
    to += next - from;
    from = next;
    if (from == text.size()) break;
    text[to++] = ' ';
    from += blank.size();
  }
  text.resize(to);
  return text;
}

}  // namespace

std::string with_spaces(std::string text, std::span<const std::string> blanks) {
  for (const std::string& blank : blanks) text = blanked(std::move(text), blank);
  return text;
}

}  // namespace dtrain::data
