#include "data/text/unicode.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "core/error.hpp"
#include "data/folder.hpp"

namespace dtrain::data {
namespace {

using ::testing::HasSubstr;

std::string utf8(char32_t character) {
  std::string text;
  append_utf8(character, text);
  return text;
}

TEST(UnicodeTest, EveryCharacterIsWrittenAndReadAgain) {
  for (char32_t c = 1; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;  // surrogates are no characters
    const std::string text = utf8(c);
    ASSERT_EQ(first_invalid_byte(text), std::string::npos) << static_cast<std::uint32_t>(c);
    const CodePoint found = code_point_at(text, 0);
    ASSERT_EQ(found.value, c);
    ASSERT_EQ(found.bytes, text.size());
  }
}

TEST(UnicodeTest, WhatIsNotUtf8IsFoundWhereItBegins) {
  const std::string before = "eight bytes, then more: \xC3\xA4 ";
  for (const std::string wrong :
       {"\xE4", "\x80", "\xC0\xAF", "\xC3(", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xE2\x82"}) {
    EXPECT_EQ(first_invalid_byte(before + wrong), before.size()) << wrong;
    EXPECT_EQ(first_invalid_byte(before + wrong + " and on"), before.size()) << wrong;
  }
  EXPECT_EQ(first_invalid_byte(before), std::string::npos);
  EXPECT_EQ(first_invalid_byte(""), std::string::npos);
}

TEST(UnicodeTest, TheRefusalNamesFileLineAndByte) {
  const Error error = testing::error_of([] { require_utf8("first\nsecond\nth\xFFird", "a.txt"); });
  EXPECT_EQ(error.code(), ExitCode::data);
  EXPECT_EQ(error.subject(), "a.txt");
  EXPECT_THAT(error.what(), HasSubstr("byte 16, in line 3"));
}

TEST(UnicodeTest, KindsOfCharacters) {
  for (const char32_t c : std::u32string_view(U"azAZ09\u00E4\u00DF\u00AA\u0416\u03A9\u4E2D\u0301\u00D0"))
    EXPECT_EQ(kind_of(c), CharacterKind::word) << static_cast<std::uint32_t>(c);
  for (const char32_t c :
       std::u32string_view(U"!\"'-_.~\u00AB\u00BF\u00D7\u00F7\u2013\u201E\u20AC\u3002\U0001F600"))
    EXPECT_EQ(kind_of(c), CharacterKind::symbol) << static_cast<std::uint32_t>(c);
  for (const char32_t c : {U' ', U'\t', U'\n', U'\x7F', U'\u0085', U'\u00A0', U'\u00AD', U'\u2009', U'\u200B',
                           U'\u3000', U'\uFEFF'})
    EXPECT_EQ(kind_of(c), CharacterKind::space) << static_cast<std::uint32_t>(c);
}

TEST(UnicodeTest, SmallLettersOfCapitals) {
  const std::u32string capitals = U"AZ\u00C4\u00DC\u1E9E\u0141\u0178\u0391\u03A9\u0416\u0401\u0531\uFF21";
  const std::u32string small = U"az\u00E4\u00FC\u00DF\u0142\u00FF\u03B1\u03C9\u0436\u0451\u0561\uFF41";
  for (std::size_t i = 0; i < capitals.size(); ++i) EXPECT_EQ(lower_case(capitals[i]), small[i]) << i;
  for (const char32_t c : small) EXPECT_EQ(lower_case(c), c);
  for (const char32_t c : std::u32string_view(U"09!\u00D7\u4E2D")) EXPECT_EQ(lower_case(c), c);
}

}  // namespace
}  // namespace dtrain::data
