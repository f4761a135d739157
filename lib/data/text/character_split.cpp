#include "data/text/character_split.hpp"

#include "data/text/unicode.hpp"

namespace dtrain::data {

void split_characters(std::string_view text, std::vector<std::string_view>& tokens) {
  for (std::size_t at = 0; at < text.size(); at += tokens.back().size())
    tokens.push_back(text.substr(at, code_point_at(text, at).bytes));
}

std::string join_characters(const std::vector<std::string_view>& tokens) {
  std::string text;
  for (const std::string_view token : tokens) text += token;
  return text;
}

}  // namespace dtrain::data
