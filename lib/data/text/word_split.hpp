#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::data {

/// The tokens of `text` for the word tokeniser, appended to `tokens`; they lie in `scratch`, which is
/// overwritten. The rule, for valid UTF-8:
/// 1. capitals become small letters (lower_case), the right single quotation mark U+2019 an apostrophe;
/// 2. a maximal run of word characters (kind_of) is one token, together with single apostrophes that have a
///    word character on both sides: `don't` is one token;
/// 3. every symbol is a token of its own; white space only separates.
void split_words(std::string_view text, std::string& scratch, std::vector<std::string_view>& tokens);

/// Text of such tokens: a space between two words, none before closing punctuation, after opening brackets
/// and around hyphens and slashes; quotation marks open and close in turn.
std::string join_words(const std::vector<std::string_view>& tokens);

}  // namespace dtrain::data
