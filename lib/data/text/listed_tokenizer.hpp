#pragma once

#include <functional>

#include "data/text/token_table.hpp"
#include "data/text/tokenizer.hpp"

namespace dtrain::data {

/// How a kind of tokeniser without a model of its own takes text apart and puts it together.
struct TokenRule {
  /// Appends the tokens of `text`; they may lie in `scratch`.
  std::function<void(std::string_view text, std::string& scratch, std::vector<std::string_view>& tokens)>
      split;
  std::function<std::string(const std::vector<std::string_view>& tokens)> join;
};

/// The rule of `word`, `char` or `synthetic`; nothing for another kind.
std::optional<TokenRule> rule_of_kind(std::string_view kind);

/// Tokens cut by a rule and looked up in a list.
class ListedTokenizer final : public Tokenizer {
 public:
  /// Throws data_error when the vocabulary is empty or has a token twice.
  ListedTokenizer(TokenRule rule, const std::vector<std::string>& vocabulary);

  std::int32_t size() const override { return table_.size(); }
  std::string token(std::int32_t id) const override { return table_.token(id); }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::optional<std::string> first_unknown(std::string_view text) const override;
  bool has_special_ids() const override { return special_ids_; }

 private:
  TokenRule rule_;
  TokenTable table_;  // a token's number is its id
  bool special_ids_;
};

}  // namespace dtrain::data
