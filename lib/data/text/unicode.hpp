#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dtrain::data {

/// Index of the first byte that does not belong to UTF-8, or npos: overlong forms, surrogates and what lies
/// above U+10FFFF do not. Source: RFC 3629.
std::size_t first_invalid_byte(std::string_view text);

/// Throws data_error naming `origin`, the line and the byte unless `text` is UTF-8.
void require_utf8(std::string_view text, const std::string& origin);

/// `text` from behind the byte order mark that some programs write in front of UTF-8.
std::string_view without_byte_order_mark(std::string_view text);

/// A character and the bytes it takes.
struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;
};

/// The character that begins at byte `at` of valid UTF-8.
CodePoint code_point_at(std::string_view text, std::size_t at);

void append_utf8(char32_t character, std::string& text);

/// What a character is to the word tokeniser.
enum class CharacterKind {
  space,   ///< White space and control characters, also those of Unicode without a width.
  symbol,  ///< Punctuation, signs, pictures: by block, see kind_of.
  word,    ///< Everything else: letters, digits, marks, of any script.
};

/// ASCII as ever. Beyond it symbols are U+00A1 to U+00BF (without the letters), the times and division signs,
/// U+2010 to U+2BFF, U+2E00 to U+2E7F, U+3001 to U+303F, U+FE10 to U+FE6F, the full-width forms of ASCII's
/// punctuation and U+1F000 to U+1FAFF: whole blocks, so that the rule can be written down and repeated.
CharacterKind kind_of(char32_t character);

/// The small letter of a capital of the Latin, Greek, Cyrillic and Armenian alphabets, one for one (the
/// simple mapping of Unicode); every other character as it is.
char32_t lower_case(char32_t character);

}  // namespace dtrain::data
