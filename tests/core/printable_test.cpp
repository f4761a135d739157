#include "core/printable.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"

namespace dtrain {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(PrintableTest, PlainTextStaysAsItIs) {
  EXPECT_EQ(printable("runs/my run/für 日本"), "runs/my run/für 日本");
  EXPECT_EQ(printable(""), "");
}

TEST(PrintableTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("a\x1b[2J\x07z\n"), "a\\x1b[2J\\x07z\\x0a");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m")
      << "C1 controls do what ESC does";
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(PrintableTest, BytesThatAreNotUtf8AreEscaped) {
  EXPECT_EQ(printable("Zw\xF6lf"), "Zw\\xf6lf");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf") << "an overlong slash";
  EXPECT_EQ(printable("\xE2\x82"), "\\xe2\\x82") << "cut in the middle";
}

TEST(PrintableTest, OfLongTextTheMiddleIsLeftOut) {
  const std::string text = "begin" + std::string(100'000, 'x') + "end";
  const std::string shown = printable(text);
  EXPECT_EQ(shown.size(), kMostForeignCharacters);
  EXPECT_THAT(shown, StartsWith("beginx"));
  EXPECT_THAT(shown, EndsWith("xend"));
  EXPECT_THAT(shown, HasSubstr("..."));
  EXPECT_EQ(printable(std::string(300, 'x')).size(), 300U);
}

TEST(PrintableTest, NoCharacterIsCutInTwo) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "ü";
  for (std::size_t most = 4; most < 40; ++most) EXPECT_TRUE(is_utf8(printable(text, most))) << most;
  EXPECT_LE(printable(std::string(5000, '\x1b')).size(), kMostForeignCharacters + 6);
}

TEST(PrintableTest, OfASentenceOnlyLongWordsAreCut) {
  const std::string shown = printable_sentence("the model " + std::string(5000, 'x') + " is not known  here");
  EXPECT_THAT(shown, StartsWith("the model xx"));
  EXPECT_THAT(shown, EndsWith(" is not known  here"));
  EXPECT_LT(shown.size(), 250U);
}

TEST(PrintableTest, AnErrorsSentenceSendsATerminalNothingButText) {
  const Error error("has the unknown task '\x1b[31mred\n'",
                    {.subject = "data/\x07" + std::string(2000, 's'), .advice = "leave \x7f out"});
  const std::string sentence = error.what();
  for (const char letter : sentence) EXPECT_GE(letter, ' ') << sentence;
  EXPECT_THAT(sentence, HasSubstr("\\x1b[31mred\\x0a"));
  EXPECT_THAT(sentence, StartsWith("data/\\x07sss"));
  EXPECT_LT(sentence.size(), 400U);
  EXPECT_EQ(error.subject().size(), 2006U) << "the program itself keeps all of it";
}

}  // namespace
}  // namespace dtrain
