#include "data/text/sentencepiece_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/error.hpp"
#include "data/text/sentencepiece_tokenizer.hpp"
#include "data/text/tokenizer.hpp"

namespace dtrain::data {
namespace {

using testing::HasSubstr;

/// A model as staging trains it; its normaliser has the library's whole table of letters.
const std::string& trained() {
  static const std::string kModel = train_sentencepiece(
      {"the cat sat on the mat", "the dog sat on the log", "a cat and a dog", "the mat and the log"}, 20);
  return kModel;
}

std::string refusal(const std::string& model) {
  try {
    check_sentencepiece_model(model);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return "accepted";
}

/// Where the table begins: behind its size, which follows the name of the library's rule.
std::size_t table_of(const std::string& model) {
  const std::size_t name = model.find("nmt_nfkc");
  EXPECT_NE(name, std::string::npos);
  std::size_t at = name + std::strlen("nmt_nfkc") + 1;  // and the key of the field
  while ((static_cast<unsigned char>(model[at]) & 0x80) != 0) ++at;
  return at + 1 + 4;
}

/// A message whose field 1 is `content`.
std::string first_field(const std::string& content) {
  std::string message = "\x0A";
  for (std::size_t rest = content.size(); rest > 0; rest >>= 7)
    message += static_cast<char>((rest & 0x7F) | (rest > 0x7F ? 0x80 : 0));
  return message + content;
}

class SentencePieceModelTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_sentencepiece()) GTEST_SKIP() << "built without SentencePiece";
  }
};

TEST_F(SentencePieceModelTest, AcceptsWhatStagingTrainsAndListsItsPieces) {
  const auto pieces = check_sentencepiece_model(trained());
  const auto tokenizer = make_sentencepiece(trained());
  ASSERT_EQ(static_cast<std::int32_t>(pieces.size()), tokenizer->size());
  for (std::int32_t id = 0; id < tokenizer->size(); ++id)
    EXPECT_EQ(pieces[static_cast<std::size_t>(id)], tokenizer->token(id));
}

TEST_F(SentencePieceModelTest, RefusesATableOfLettersThatLeavesItself) {
  std::string model = trained();
  const std::uint32_t far = 0x7FFFFC00;  // the first state would lie beyond the table
  std::memcpy(model.data() + table_of(model), &far, 4);
  EXPECT_THAT(refusal(model), HasSubstr("leaves itself"));
  EXPECT_THROW(make_sentencepiece(model), Error);
}

TEST_F(SentencePieceModelTest, RefusesATableThatSaysItIsLarger) {
  std::string model = trained();
  const std::uint32_t huge = 0xFFFFFFFC;
  std::memcpy(model.data() + table_of(model) - 4, &huge, 4);
  EXPECT_THAT(refusal(model), HasSubstr("is cut"));
}

TEST_F(SentencePieceModelTest, RefusesPiecesOverWhichTheLibraryWouldRecurseTooDeep) {
  const std::string piece(200'000, 'x');
  EXPECT_THAT(refusal(first_field(first_field(piece))), HasSubstr("200000 bytes"));
}

TEST_F(SentencePieceModelTest, RefusesAModelThatIsCutWithinItsTable) {
  const std::string& model = trained();
  EXPECT_THAT(refusal(model.substr(0, table_of(model) + 1000)), HasSubstr("ends too early"));
  EXPECT_THAT(refusal(""), HasSubstr("no pieces"));
  EXPECT_THAT(refusal("no model"), HasSubstr("is damaged"));
}

TEST_F(SentencePieceModelTest, RefusesPiecesThatAreNotThoseOfTheVocabulary) {
  TokenizerInfo info{
      .kind = "sentencepiece", .vocabulary = check_sentencepiece_model(trained()), .model = trained()};
  EXPECT_NO_THROW(make_tokenizer(info));
  info.vocabulary.back() = "other";
  EXPECT_THROW(make_tokenizer(info), Error);
}

}  // namespace
}  // namespace dtrain::data
