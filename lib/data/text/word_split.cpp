#include "data/text/word_split.hpp"

#include <array>

#include "data/text/unicode.hpp"

namespace dtrain::data {
namespace {

constexpr char32_t kRightQuote = 0x2019;

/// kind_of and lower_case of ASCII as tables.
struct AsciiTables {
  std::array<CharacterKind, 128> kind{};
  std::array<char, 128> lower{};
  AsciiTables() {
    for (char32_t c = 0; c < 128; ++c) {
      kind[c] = kind_of(c);
      lower[c] = static_cast<char>(lower_case(c));
    }
  }
};

const AsciiTables& ascii() {
  static const AsciiTables kTables;
  return kTables;
}

/// Step 1 of the rule.
void lower_into(std::string_view text, std::string& out) {
  const AsciiTables& tables = ascii();
  out.clear();
  out.reserve(text.size() + 8);
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      out += tables.lower[byte];
      ++at;
      continue;
    }
    const CodePoint found = code_point_at(text, at);
    append_utf8(found.value == kRightQuote ? U'\'' : lower_case(found.value), out);
    at += found.bytes;
  }
}

struct Kind {
  CharacterKind kind;
  std::size_t bytes;
};

Kind kind_at(const AsciiTables& tables, std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {tables.kind[byte], 1};
  const CodePoint found = code_point_at(text, at);
  return {kind_of(found.value), found.bytes};
}

bool begins_word(const AsciiTables& tables, std::string_view text, std::size_t at) {
  return at < text.size() && kind_at(tables, text, at).kind == CharacterKind::word;
}

enum class Gap { spaced, tight };

/// What stands on either side of a token that is one symbol.
struct Sides {
  Gap before = Gap::spaced;
  Gap after = Gap::spaced;
};

Sides sides_of(std::string_view token, bool quote_is_open) {
  constexpr std::string_view kClosing = ".,;:!?)]}%";
  constexpr std::string_view kOpening = "([{$#";
  constexpr std::string_view kJoining = "-/_@";
  if (token == "\"" || token == "'")
    return quote_is_open ? Sides{Gap::tight, Gap::spaced} : Sides{Gap::spaced, Gap::tight};
  if (token.size() == 1 && kClosing.find(token) != std::string_view::npos) return {Gap::tight, Gap::spaced};
  if (token.size() == 1 && kOpening.find(token) != std::string_view::npos) return {Gap::spaced, Gap::tight};
  if (token.size() == 1 && kJoining.find(token) != std::string_view::npos) return {Gap::tight, Gap::tight};
  return {};
}

}  // namespace

void split_words(std::string_view text, std::string& scratch, std::vector<std::string_view>& tokens) {
  const AsciiTables& tables = ascii();
  lower_into(text, scratch);
  const std::string_view lowered = scratch;
  for (std::size_t at = 0; at < lowered.size();) {
    const Kind first = kind_at(tables, lowered, at);
    std::size_t end = at + first.bytes;
    if (first.kind == CharacterKind::word) {
      while (end < lowered.size()) {
        const Kind next = kind_at(tables, lowered, end);
        const bool inner_apostrophe = lowered[end] == '\'' && begins_word(tables, lowered, end + 1);
        if (next.kind != CharacterKind::word && !inner_apostrophe) break;
        end += next.bytes;
      }
    }
    if (first.kind != CharacterKind::space) tokens.push_back(lowered.substr(at, end - at));
    at = end;
  }
}

std::string join_words(const std::vector<std::string_view>& tokens) {
  std::string text;
  Gap gap = Gap::tight;  // before the first token
  bool double_open = false;
  bool single_open = false;
  for (const std::string_view token : tokens) {
    bool& open = token == "'" ? single_open : double_open;
    const Sides sides = sides_of(token, open);
    if (token == "\"" || token == "'") open = !open;
    if (gap == Gap::spaced && sides.before == Gap::spaced) text += ' ';
    text += token;
    gap = sides.after;
  }
  return text;
}

}  // namespace dtrain::data
