#include "data/text/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/folder.hpp"
#include "data/text/base64.hpp"
#include "data/text/corpus.hpp"
#include "data/text/sentencepiece_tokenizer.hpp"
#include "data/text/word_split.hpp"

namespace dtrain::data {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

std::vector<std::string> words_of(const std::string& text) {
  std::string scratch;
  std::vector<std::string_view> tokens;
  split_words(text, scratch, tokens);
  return {tokens.begin(), tokens.end()};
}

std::vector<std::int64_t> all_of(std::size_t n) {
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < n; ++i) ids.push_back(static_cast<std::int64_t>(i));
  return ids;
}

EncodedCorpus encode(const std::vector<std::string_view>& train, const CorpusOptions& options) {
  return encode_corpus({{"train", train}}, all_of(train.size()), options);
}

TokenizerInfo info_of(const EncodedCorpus& corpus, const std::string& kind) {
  return {.kind = kind, .vocabulary = corpus.vocabulary, .model = corpus.model};
}

TEST(WordSplitTest, WordsAreLowerCaseAndSymbolsStandAlone) {
  EXPECT_THAT(words_of("Ein Mann, 3.5 Meter GROSS (\xC3\x9C"
                       "bergr\xC3\xB6\xC3\x9F"
                       "e)!"),
              ElementsAre("ein", "mann", ",", "3", ".", "5", "meter", "gross", "(",
                          "\xC3\xBC"
                          "bergr\xC3\xB6\xC3\x9F"
                          "e",
                          ")", "!"));
  EXPECT_THAT(words_of("T-shirt a_b ..."), ElementsAre("t", "-", "shirt", "a", "_", "b", ".", ".", "."));
  EXPECT_THAT(words_of(" \t\r\n\xC2\xA0"), ElementsAre());
}

TEST(WordSplitTest, AnApostropheInsideAWordBelongsToIt) {
  EXPECT_THAT(words_of("Don't rock'n'roll the dogs' 'best' '90s o''clock isn\xE2\x80\x99t"),
              ElementsAre("don't", "rock'n'roll", "the", "dogs", "'", "'", "best", "'", "'", "90s", "o", "'",
                          "'", "clock", "isn't"));
}

TEST(WordSplitTest, JoinedWordsReadLikeASentence) {
  const std::string text = "a man (in a t-shirt) says: \"don't!\", then leaves.";
  std::string scratch;
  std::vector<std::string_view> tokens;
  split_words(text, scratch, tokens);
  EXPECT_EQ(join_words(tokens), text);
}

TEST(CorpusTest, AWordVocabularyIsOrderedByFrequencyThenBytes) {
  const auto corpus = encode({"b b a a c", "b d"}, {.kind = "word"});
  EXPECT_THAT(corpus.vocabulary, ElementsAre("<pad>", "<unk>", "<start>", "<end>", "b", "a", "c", "d"));
  EXPECT_THAT(corpus.splits.at("train").tokens, ElementsAre(4, 4, 5, 5, 6, 4, 7));
  EXPECT_THAT(corpus.splits.at("train").offsets, ElementsAre(0, 5, 7));
  EXPECT_EQ(corpus.longest, 5);
}

TEST(CorpusTest, RareWordsAndThoseBeyondTheSizeAreUnknown) {
  EXPECT_THAT(encode({"b b a a c"}, {.kind = "word", .min_frequency = 2}).splits.at("train").tokens,
              ElementsAre(4 + 1, 4 + 1, 4, 4, kUnknownId));  // a before b: equally frequent
  const auto small = encode({"b b a a a c"}, {.kind = "word", .vocabulary_size = 5});
  EXPECT_THAT(small.vocabulary, ElementsAre("<pad>", "<unk>", "<start>", "<end>", "a"));
}

TEST(CorpusTest, OnlyTheChosenTextsOfTrainAreLearnedFrom) {
  const std::vector<std::int64_t> learned = {0};
  const auto corpus =
      encode_corpus({{"train", {"a", "held out"}}, {"test", {"a b"}}}, learned, {.kind = "word"});
  EXPECT_EQ(corpus.vocabulary.size(), 5);
  EXPECT_THAT(corpus.splits.at("train").tokens, ElementsAre(4, kUnknownId, kUnknownId));
  EXPECT_THAT(corpus.splits.at("test").tokens, ElementsAre(4, kUnknownId));
}

TEST(CorpusTest, AFrameIsPutAroundAndSurvivesTheCut) {
  const auto corpus = encode({"a b c d", "a"},
                             {.kind = "word", .max_length = 4, .frame = CorpusOptions::Frame::start_and_end});
  EXPECT_THAT(corpus.splits.at("train").tokens, ElementsAre(kStartId, 4, 5, kEndId, kStartId, 4, kEndId));
  EXPECT_EQ(corpus.longest, 4);
}

TEST(CorpusTest, RunningTextByCharacterNeedsSpecialIdsOnlyForWhatTrainLacks) {
  const CorpusOptions options{.kind = "char", .special_ids = CorpusOptions::SpecialIds::where_needed};
  const auto plain = encode_corpus({{"train", {"cab"}}, {"validation", {"ab"}}}, all_of(1), options);
  EXPECT_THAT(plain.vocabulary, ElementsAre("a", "b", "c"));
  EXPECT_THAT(plain.splits.at("train").tokens, ElementsAre(2, 0, 1));
  const auto tokenizer = make_tokenizer(info_of(plain, "char"));
  EXPECT_FALSE(tokenizer->has_special_ids());
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("abc")), "abc");
  EXPECT_EQ(error_of([&] { tokenizer->encode("abx"); }).code(), ExitCode::data);

  const auto held = encode_corpus({{"train", {"cab"}}, {"validation", {"ax"}}}, all_of(1), options);
  EXPECT_THAT(held.vocabulary, ElementsAre("<pad>", "<unk>", "<start>", "<end>", "a", "b", "c"));
  EXPECT_THAT(held.splits.at("validation").tokens, ElementsAre(4, kUnknownId));
}

TEST(TokenizerTest, EncodingLaterGivesTheIdsOfStaging) {
  for (const std::string kind : {"word", "char"}) {
    const std::string text =
        "Der Hund l\xC3\xA4uft, der Hund schl\xC3\xA4"
        "ft.";
    const auto corpus = encode({text, "Noch ein Satz."}, {.kind = kind});
    const auto tokenizer = make_tokenizer(info_of(corpus, kind));
    const auto& train = corpus.splits.at("train");
    const std::vector<std::int32_t> first(train.tokens.begin(), train.tokens.begin() + train.offsets[1]);
    EXPECT_EQ(tokenizer->encode(text), first) << kind;
    EXPECT_EQ(tokenizer->size(), static_cast<std::int32_t>(corpus.vocabulary.size()));
    EXPECT_EQ(tokenizer->token(4), corpus.vocabulary[4]);
  }
}

TEST(TokenizerTest, DecodingLeavesSpecialIdsOutAndShowsUnknownOnes) {
  const TokenizerInfo info{.kind = "word",
                           .vocabulary = {"<pad>", "<unk>", "<start>", "<end>", "a", "dog", "."}};
  const auto tokenizer = make_tokenizer(info);
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{2, 4, 1, 5, 6, 3, 0, 0}), "a <unk> dog.");
  EXPECT_THROW(tokenizer->decode(std::vector<std::int32_t>{7}), Error);
}

TEST(TokenizerTest, StrictEncodingNamesTheFirstUnknownCharacter) {
  const auto corpus = encode({"abc"}, {.kind = "char"});
  const auto tokenizer = make_tokenizer(info_of(corpus, "char"));
  EXPECT_THAT(tokenizer->encode_strictly("cab", "--prompt"), ElementsAre(6, 4, 5));
  const Error error = error_of([&] { tokenizer->encode_strictly("ab\xC3\xA4z", "--prompt"); });
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_EQ(error.subject(), "--prompt");
  EXPECT_THAT(error.what(), HasSubstr("'\xC3\xA4'"));
  EXPECT_EQ(error_of([&] { tokenizer->encode_strictly("a\xFF", "--prompt"); }).code(), ExitCode::usage);
}

TEST(TokenizerTest, AKindThereIsNotAndATwofoldTokenAreRefused) {
  EXPECT_EQ(error_of([] { make_tokenizer({.kind = "morse", .vocabulary = {"a"}}); }).code(), ExitCode::data);
  EXPECT_EQ(error_of([] {
              make_tokenizer({.kind = "word", .vocabulary = {"a", "a"}});
            }).code(),
            ExitCode::data);
  EXPECT_EQ(error_of([] { make_tokenizer({.kind = "word", .vocabulary = {}}); }).code(), ExitCode::data);
}

/// 400 sentences of a few words.
std::vector<std::string> sentences() {
  const std::vector<std::string> words = {"hund",
                                          "katze",
                                          "l\xC3\xA4uft",
                                          "schl\xC3\xA4"
                                          "ft",
                                          "garten",
                                          "wiese",
                                          "mann",
                                          "frau",
                                          "gro\xC3\x9F"
                                          "e",
                                          "kleine"};
  std::vector<std::string> made;
  for (std::size_t i = 0; i < 400; ++i)
    made.push_back(words[i % 10] + " " + words[i / 10 % 10] + " " + words[i / 7 % 10] + " " +
                   words[i / 3 % 10]);
  return made;
}

TEST(SentencePieceTest, AModelTravelsAsBytesAndKeepsOurSpecialIds) {
  if (!has_sentencepiece()) GTEST_SKIP() << "built without SentencePiece";
  const auto made = sentences();
  const std::vector<std::string_view> texts(made.begin(), made.end());
  const auto corpus = encode(texts, {.kind = "sentencepiece", .vocabulary_size = 34});
  EXPECT_EQ(corpus.vocabulary.size(), 34);
  for (std::size_t id = 0; id < 4; ++id) EXPECT_EQ(corpus.vocabulary[id], kSpecialTokens[id]);
  TokenizerInfo info = info_of(corpus, "sentencepiece");
  info.model = *from_base64(to_base64(info.model));
  const auto tokenizer = make_tokenizer(info);
  EXPECT_EQ(tokenizer->size(), 34);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(made[17])), made[17]);
  const auto& train = corpus.splits.at("train");
  EXPECT_EQ(tokenizer->encode(made[0]),
            std::vector<std::int32_t>(train.tokens.begin(), train.tokens.begin() + train.offsets[1]));
  EXPECT_EQ(encode(texts, {.kind = "sentencepiece", .vocabulary_size = 34}).model, corpus.model);
  const Error error = error_of([&] { tokenizer->encode_strictly("hund \xE4\xB8\xAD", "--prompt"); });
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_THAT(error.what(), HasSubstr("\xE4\xB8\xAD"));
}

TEST(SentencePieceTest, ALineThatIsEncodedInPartsHasTheIdsOfItsSentences) {
  if (!has_sentencepiece()) GTEST_SKIP() << "built without SentencePiece";
  const auto made = sentences();
  const std::vector<std::string_view> texts(made.begin(), made.end());
  const auto tokenizer = make_sentencepiece(train_sentencepiece(texts, 34));
  std::string line;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; line.size() < 3'000'000; ++i) {
    const std::string& sentence = made[i % made.size()];
    if (i != 0) line += ' ';
    line += sentence;
    for (const std::int32_t id : tokenizer->encode(sentence)) ids.push_back(id);
  }
  EXPECT_TRUE(tokenizer->encode(line) == ids);
  std::erase(line, ' ');
  EXPECT_FALSE(tokenizer->encode(line).empty());
  EXPECT_FALSE(tokenizer->first_unknown(line).has_value());
}

TEST(SentencePieceTest, AVocabularyThatTheTextCannotFillIsRefusedWithTheLargestThatItCan) {
  if (!has_sentencepiece()) GTEST_SKIP() << "built without SentencePiece";
  const auto made = sentences();
  const std::vector<std::string_view> texts(made.begin(), made.end());
  const Error error = error_of([&] { train_sentencepiece(texts, 5000); });
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_THAT(error.subject(), HasSubstr("--vocab-size 5000"));
  EXPECT_THAT(error.advice(), HasSubstr("choose at most "));
  EXPECT_THAT(error_of([&] { train_sentencepiece(texts, 5); }).what(), HasSubstr("has characters"));
}

TEST(SentencePieceTest, ADamagedModelIsRefused) {
  if (!has_sentencepiece()) GTEST_SKIP() << "built without SentencePiece";
  EXPECT_EQ(error_of([] { make_tokenizer({.kind = "sentencepiece", .model = "no model"}); }).code(),
            ExitCode::data);
}

TEST(Base64Test, AgreesWithTheExamplesOfItsStandard) {
  const std::vector<std::pair<std::string, std::string>> examples = {{"", ""},
                                                                     {"f", "Zg=="},
                                                                     {"fo", "Zm8="},
                                                                     {"foo", "Zm9v"},
                                                                     {"foob", "Zm9vYg=="},
                                                                     {"fooba", "Zm9vYmE="},
                                                                     {"foobar", "Zm9vYmFy"},
                                                                     {"\xFF\xFE\xFB", "//77"}};
  for (const auto& [bytes, text] : examples) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
  for (const std::string wrong : {"Zg=", "Zg", "Z===", "Zm9v!mFy", "=Zm9"})
    EXPECT_FALSE(from_base64(wrong)) << wrong;
}

}  // namespace
}  // namespace dtrain::data
