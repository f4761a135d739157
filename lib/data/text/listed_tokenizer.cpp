#include "data/text/listed_tokenizer.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "data/text/unicode.hpp"
#include "data/text/word_split.hpp"

namespace dtrain::data {
namespace {

/// One token per character (code point) of valid UTF-8, case and white space kept.
void split_characters(std::string_view text, std::vector<std::string_view>& tokens) {
  for (std::size_t at = 0; at < text.size(); at += tokens.back().size())
    tokens.push_back(text.substr(at, code_point_at(text, at).bytes));
}

std::string join_characters(const std::vector<std::string_view>& tokens) {
  std::string text;
  for (const std::string_view token : tokens) text += token;
  return text;
}

}  // namespace

std::optional<TokenRule> rule_of_kind(std::string_view kind) {
  if (kind == "word" || kind == "synthetic") return TokenRule{split_words, join_words};
  if (kind == "char")
    return TokenRule{[](std::string_view text, std::string&, std::vector<std::string_view>& tokens) {
                       split_characters(text, tokens);
                     },
                     join_characters};
  return std::nullopt;
}

ListedTokenizer::ListedTokenizer(TokenRule rule, const std::vector<std::string>& vocabulary)
    : rule_(std::move(rule)) {
  for (const std::string& token : vocabulary) table_.add(token);
  if (vocabulary.empty() || table_.size() != static_cast<std::int32_t>(vocabulary.size()))
    throw data_error(vocabulary.empty() ? "is empty" : "has a token twice", "the tokenizer's vocabulary",
                     "stage the dataset again");
  special_ids_ =
      std::equal(std::begin(kSpecialTokens), std::end(kSpecialTokens), vocabulary.begin(),
                 vocabulary.begin() + std::min<std::ptrdiff_t>(kSpecialIds, std::ssize(vocabulary)));
}

std::vector<std::int32_t> ListedTokenizer::encode(std::string_view text) const {
  std::string scratch;
  std::vector<std::string_view> tokens;
  rule_.split(text, scratch, tokens);
  std::vector<std::int32_t> ids;
  ids.reserve(tokens.size());
  for (const std::string_view token : tokens) {
    const std::int32_t id = table_.find(token);
    if (id < 0 && !special_ids_)
      throw data_error("has '" + std::string(token) + "', which is not in its vocabulary", "the text",
                       "use only what the dataset's text uses");
    ids.push_back(id < 0 ? kUnknownId : id);
  }
  return ids;
}

std::string ListedTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::vector<std::string_view> tokens;
  for (const std::int32_t id : ids) {
    require(id >= 0 && id < size(), "there is no token of id " + std::to_string(id),
            {.subject = "the tokenizer", .advice = "use the dataset that the model was trained on"});
    if (!special_ids_ || id == kUnknownId || id >= kSpecialIds) tokens.emplace_back(table_.token(id));
  }
  return rule_.join(tokens);
}

std::optional<std::string> ListedTokenizer::first_unknown(std::string_view text) const {
  std::string scratch;
  std::vector<std::string_view> tokens;
  rule_.split(text, scratch, tokens);
  for (const std::string_view token : tokens)
    if (table_.find(token) < 0) return std::string(token);
  return std::nullopt;
}

}  // namespace dtrain::data
