#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/folder.hpp"
#include "data/import/stage.hpp"
#include "data/sampler.hpp"
#include "data/text/sentencepiece_tokenizer.hpp"
#include "data/text/tokenizer.hpp"
#include "h5/library.hpp"

namespace dtrain::data {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using testing::TemporaryFolder;
using testing::write_bytes;

class StageTextTest : public ::testing::Test {
 protected:
  StageTextTest() { std::filesystem::create_directories(folder / "original"); }

  void write(const std::string& name, const std::string& text) {
    const auto file = folder / ("original/" + name);
    std::filesystem::create_directories(file.parent_path());
    write_bytes(file, text);
  }

  StageOptions options() const {
    return {.name = "set", .from = folder / "original", .data_root = folder / "staged"};
  }

  Dataset staged(const StageOptions& given) {
    stage(given, library);
    return Dataset::open(folder / "staged/set", library);
  }
  Dataset staged() { return staged(options()); }

  /// What staging ends with; also asserts that no dataset is left, whole or half.
  Error refusal(const StageOptions& given) {
    Error error = error_of([&] { stage(given, library); });
    EXPECT_FALSE(std::filesystem::exists(given.data_root / given.name));
    EXPECT_FALSE(std::filesystem::exists(given.data_root / (given.name + ".partial")));
    EXPECT_FALSE(error.advice().empty());
    return error;
  }
  void expect_refusal(const std::string& words, ExitCode code = ExitCode::data) {
    const Error error = refusal(options());
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(error.what(), HasSubstr(words));
  }

  /// All rows of a split: inputs without their padding, and targets.
  struct Rows {
    std::vector<std::vector<std::int32_t>> inputs;
    std::vector<std::int64_t> classes;
    std::vector<std::vector<std::int32_t>> translations;
  };
  static Rows rows_of(const Dataset& dataset, const std::string& split) {
    Rows rows;
    HostArray inputs;
    HostArray targets;
    const auto ids = epoch_order(dataset.info().samples(split), Order::identity, 0, 0);
    dataset.source(split)->gather(ids, inputs, targets);
    rows.inputs = without_padding(inputs);
    if (targets.type() == ElementType::int64) {
      const auto values = targets.as<std::int64_t>();
      rows.classes.assign(values.begin(), values.end());
    } else {
      rows.translations = without_padding(targets);
    }
    return rows;
  }
  static std::vector<std::vector<std::int32_t>> without_padding(const HostArray& array) {
    std::vector<std::vector<std::int32_t>> rows;
    const auto width = static_cast<std::size_t>(array.shape().at(1));
    const auto values = array.as<std::int32_t>();
    for (std::size_t at = 0; at < values.size(); at += width) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(at);
      rows.emplace_back(begin, std::find(begin, begin + static_cast<std::ptrdiff_t>(width), kPaddingId));
    }
    return rows;
  }

  /// 20 reviews to train on, 4 to test.
  void write_reviews() {
    for (int id = 0; id < 10; ++id) {
      const std::string number = std::to_string(id);
      write("aclImdb/train/neg/" + number + "_2.txt", "A bad film<br /><br />number" + number + ".");
      write("aclImdb/train/pos/" + number + "_9.txt", "A good film, really.");
    }
    for (int id = 0; id < 2; ++id) {
      write("aclImdb/test/neg/" + std::to_string(id) + "_1.txt", "bad");
      write("aclImdb/test/pos/" + std::to_string(id) + "_10.txt", "good unheard");
    }
    write("aclImdb/train/unsup/0_0.txt", "not labelled");
    write("aclImdb/train/urls_pos.txt", "http://example.org");
    write("aclImdb/README", "about");
  }

  /// Five pairs to train on, one to validate, and two test sets.
  void write_pairs() {
    write("train.de", "Ein Hund.\nEin Mann.\nEine Frau.\r\nEin Hund und ein Mann.\nEin Kind.\n");
    write("train.en", "A dog.\nA man.\nA woman.\nA dog and a man.\nA child.\n");
    write("val.de", "Ein Mann.\n");
    write("val.en", "A man.\n");
    for (const std::string year : {"2016", "2017"}) {
      write("test_" + year + "_flickr.de", "Ein Hund im Jahr " + year + ".\n");
      write("test_" + year + "_flickr.en", "A dog in " + year + ".\n");
    }
  }

  /// 40 lines of news in two classes.
  static std::string news(int rows) {
    std::string text;
    for (int row = 0; row < rows; ++row)
      text += row % 2 == 0 ? "\"1\",\"World: war\",\"Reuters - He said \"\"no\"\" to\\peace\"\n"
                           : "\"2\",\"Sports news, today\",\"The team won again\"\n";
    return text;
  }

  TemporaryFolder folder;
  h5::Library library;
};

TEST_F(StageTextTest, ReviewsBecomeTextInTwoClasses) {
  write_reviews();
  const Dataset dataset = staged();
  const DatasetInfo& info = dataset.info();
  EXPECT_EQ(info.task, "text_classification");
  EXPECT_THAT(info.classes, ElementsAre("neg", "pos"));
  EXPECT_EQ(info.samples("train"), 18);
  EXPECT_EQ(info.samples("validation"), 2);  // a stratified tenth
  EXPECT_EQ(info.samples("test"), 4);
  const Rows train = rows_of(dataset, "train");
  EXPECT_EQ(std::count(train.classes.begin(), train.classes.end(), 1), 9);
  const auto tokenizer = make_tokenizer(*info.tokenizer);
  EXPECT_THAT(tokenizer->decode(train.inputs[0]), ::testing::StartsWith("a bad film number"));
  EXPECT_EQ(train.inputs[0], tokenizer->encode(tokenizer->decode(train.inputs[0])));
  const Rows test = rows_of(dataset, "test");
  EXPECT_THAT(test.classes, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(test.inputs[2], (std::vector<std::int32_t>{tokenizer->encode("good")[0], kUnknownId}));
}

TEST_F(StageTextTest, TheVocabularyKnowsNothingOfWhatIsSetAside) {
  write_reviews();
  const Dataset dataset = staged();
  const auto& vocabulary = dataset.info().tokenizer->vocabulary;
  const auto numbered = [](const std::string& token) { return token.starts_with("number"); };
  EXPECT_EQ(std::count_if(vocabulary.begin(), vocabulary.end(), numbered),
            9);  // of ten: one is in validation
}

TEST_F(StageTextTest, TheVocabularyIsOfAllDocumentsIfNoneAreToValidate) {
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += std::to_string(i % 2) + ",this is word" + std::to_string(i) + "\n";
  write("train.csv", rows);
  write("test.csv", "0,a b c\n1,d e f\n");
  StageOptions given = options();
  given.no_validation = true;
  EXPECT_EQ(staged(given).info().tokenizer.value().vocabulary.size(), 4 + 2 + 40);
}

TEST_F(StageTextTest, LineBreaksThatAreWrittenOutAreSpaces) {
  write("train.csv",
        "0,\"first\\nsecond \\\"\"third\\\"\" thing\"\n"
        "1,\"one\\ntwo words\\n\\nthree\"\n");
  write("test.csv", "0,a b c d\n1,d e f g\n");
  StageOptions given = options();
  given.no_validation = true;
  const TokenizerInfo tokenizer = staged(given).info().tokenizer.value();
  EXPECT_THAT(tokenizer.vocabulary, IsSupersetOf({"first", "second", "third", "one", "two", "three"}));
  EXPECT_THAT(tokenizer.blanks, ElementsAre("\\n", "\\"));
}

TEST_F(StageTextTest, ADocumentOfLineBreaksIsEmpty) {
  write("train.csv", "0,\"first\\nsecond third thing\"\n1,\"\\n\\n\"\n1,two words more\n");
  expect_refusal("train.csv: line 2 is an empty document");
}

TEST_F(StageTextTest, CarriageReturnsOfRunningTextAreNoCharacters) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "to be or\r\nnot\r\n";
  write("text.txt", text);
  StageOptions given = options();
  given.text.max_length = 16;
  const auto vocabulary = staged(given).info().tokenizer.value().vocabulary;
  EXPECT_THAT(vocabulary, Contains("\n"));
  EXPECT_THAT(vocabulary, Not(Contains("\r")));
}

TEST_F(StageTextTest, OptionsLimitVocabularyAndLength) {
  write_reviews();
  StageOptions given = options();
  given.text = {.vocabulary_size = 6, .max_length = 3};
  const Dataset dataset = staged(given);
  EXPECT_EQ(dataset.info().tokenizer->vocabulary.size(), 6);
  EXPECT_EQ(dataset.info().shape, std::vector<std::int64_t>{3});
  for (const auto& row : rows_of(dataset, "train").inputs) EXPECT_EQ(row.size(), 3);

  given.overwrite = true;
  given.text = {.min_frequency = 9};
  EXPECT_THAT(
      staged(given).info().tokenizer->vocabulary,
      ElementsAre("<pad>", "<unk>", "<start>", "<end>", ".", "a", "film", ",", "bad", "good", "really"));
}

TEST_F(StageTextTest, PairsHaveAFrameAndAVocabularyEach) {
  write_pairs();
  const Dataset dataset = staged();
  const DatasetInfo& info = dataset.info();
  EXPECT_EQ(info.task, "translation");
  EXPECT_EQ(info.samples("train"), 5);
  EXPECT_EQ(info.samples("validation"), 1);
  EXPECT_EQ(info.samples("test"), 1);
  // Twice or more often in train, the default of pairs; by frequency, then by bytes.
  EXPECT_THAT(info.tokenizer->vocabulary,
              ElementsAre("<pad>", "<unk>", "<start>", "<end>", ".", "ein", "hund", "mann"));
  EXPECT_THAT(info.tokenizer->target_vocabulary,
              ElementsAre("<pad>", "<unk>", "<start>", "<end>", "a", ".", "dog", "man"));
  const Rows train = rows_of(dataset, "train");
  EXPECT_EQ(train.inputs[0], (std::vector<std::int32_t>{kStartId, 5, 6, 4, kEndId}));
  EXPECT_EQ(train.translations[0], (std::vector<std::int32_t>{kStartId, 4, 6, 5, kEndId}));
  EXPECT_EQ(train.inputs[2][1], kUnknownId);  // eine
  EXPECT_EQ(make_tokenizer(*info.tokenizer, Side::target)->decode(train.translations[3]),
            "a dog <unk> a man.");
}

TEST_F(StageTextTest, LanguagesCanBeTurnedRound) {
  write_pairs();
  StageOptions given = options();
  given.text.languages = "en-de";
  EXPECT_EQ(staged(given).info().tokenizer->vocabulary[6], "dog");
  given.overwrite = true;
  given.text.languages = "en-fr";
  const Error error = error_of([&] { stage(given, library); });
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_THAT(error.what(), HasSubstr("de, en"));
}

TEST_F(StageTextTest, ASecondPairOfFilesOfASplitIsNamed) {
  write_pairs();
  write("train2.de", "Ein Baum.\n");
  write("train2.en", "A tree.\n");
  StageReport report;
  stage(options(), library, {}, &report);
  ASSERT_EQ(report.remarks.size(), 2);
  EXPECT_THAT(report.remarks[0], HasSubstr("left out: test_2017_flickr.de and test_2017_flickr.en"));
  EXPECT_THAT(report.remarks[1], HasSubstr("left out: train2.de and train2.en"));
  EXPECT_THAT(report.remarks[1], HasSubstr("the split train"));
}

TEST_F(StageTextTest, NewsAreRecognisedAndTheirFieldsJoined) {
  write("train.csv", news(40));
  write("test.csv", news(4));
  const Dataset dataset = staged();
  EXPECT_EQ(dataset.info().task, "text_classification");
  EXPECT_THAT(dataset.info().classes, ElementsAre("1", "2"));
  EXPECT_EQ(dataset.info().samples("train"), 36);
  const Rows test = rows_of(dataset, "test");
  EXPECT_THAT(test.classes, ElementsAre(0, 1, 0, 1));
  const auto tokenizer = make_tokenizer(*dataset.info().tokenizer);
  EXPECT_EQ(tokenizer->decode(test.inputs[0]), "world: war reuters-he said \"no\" to peace");
}

TEST_F(StageTextTest, ClassesCanHaveNames) {
  write("train.csv", news(40));
  write("classes.txt", "World\nSports\nBusiness\n");
  EXPECT_THAT(staged().info().classes, ElementsAre("World", "Sports", "Business"));
}

TEST_F(StageTextTest, RunningTextIsCutIntoBlocksAndItsLastTenthHeldOut) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i * i % 7);
  write("input.txt", text);
  StageOptions given = options();
  given.text.max_length = 8;
  const Dataset dataset = staged(given);
  const DatasetInfo& info = dataset.info();
  EXPECT_EQ(info.task, "language_modelling");
  EXPECT_EQ(info.shape, std::vector<std::int64_t>{8});
  EXPECT_EQ(info.samples("train"), 899 / 8);
  EXPECT_EQ(info.samples("validation"), 99 / 8);
  EXPECT_EQ(info.samples("test"), 0);
  const auto tokenizer = make_tokenizer(*info.tokenizer);
  EXPECT_FALSE(tokenizer->has_special_ids());
  HostArray inputs;
  HostArray targets;
  const std::vector<std::int64_t> second = {1};
  dataset.source("train")->gather(second, inputs, targets);
  EXPECT_EQ(tokenizer->decode(inputs.as<std::int32_t>()), text.substr(8, 8));
  EXPECT_EQ(tokenizer->decode(targets.as<std::int32_t>()), text.substr(9, 8));
  dataset.source("validation")->gather(std::vector<std::int64_t>{0}, inputs, targets);
  EXPECT_EQ(tokenizer->decode(inputs.as<std::int32_t>()), text.substr(900, 8));
}

TEST_F(StageTextTest, ASentencePieceModelTravelsInTheDataset) {
  if (!has_sentencepiece()) GTEST_SKIP() << "built without SentencePiece";
  write_pairs();
  StageOptions given = options();
  given.text = {.tokenizer = "sentencepiece", .vocabulary_size = 21};
  const Dataset dataset = staged(given);
  const auto source = make_tokenizer(*dataset.info().tokenizer);
  const auto target = make_tokenizer(*dataset.info().tokenizer, Side::target);
  EXPECT_EQ(source->decode(rows_of(dataset, "train").inputs[3]), "Ein Hund und ein Mann.");
  EXPECT_EQ(target->decode(rows_of(dataset, "train").translations[3]), "A dog and a man.");
  given.name = "other";
  given.text.vocabulary_size = 4000;
  EXPECT_EQ(refusal(given).code(), ExitCode::usage);
}

TEST_F(StageTextTest, AnUnknownTokenizerIsRefusedByName) {
  write_reviews();
  StageOptions given = options();
  given.text.tokenizer = "morse";
  const Error error = refusal(given);
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_THAT(error.what(), HasSubstr("morse"));
  for (const TextOptions& wrong : {TextOptions{.vocabulary_size = 4}, TextOptions{.vocabulary_size = -1},
                                   TextOptions{.min_frequency = -1}, TextOptions{.max_length = 2}}) {
    given.text = wrong;
    EXPECT_EQ(refusal(given).code(), ExitCode::usage);
  }
}

TEST_F(StageTextTest, TextThatIsNotUtf8IsNamedWithItsLine) {
  write_reviews();
  write("aclImdb/train/neg/3_2.txt", "first line\nB\xF6se");
  expect_refusal("train/neg/3_2.txt: is not UTF-8: byte 13, in line 2");
  std::filesystem::remove_all(folder / "original/aclImdb");
  write_pairs();
  write("val.de", "M\xE4nner\n");
  expect_refusal("val.de: is not UTF-8");
  std::filesystem::remove_all(folder / "original");
  write("train.csv", news(10) + "1,caf\xE9 is no word,here\n");
  expect_refusal("train.csv: is not UTF-8: byte 501, in line 11");
  std::filesystem::remove_all(folder / "original");
  write("input.txt", std::string(5000, 'a') + "\xFF");
  expect_refusal("input.txt: is not UTF-8");
}

TEST_F(StageTextTest, AnEmptyDocumentIsNamed) {
  write_reviews();
  write("aclImdb/test/pos/1_10.txt", " <br /> ");
  expect_refusal("test/pos/1_10.txt: is an empty document");
  std::filesystem::remove_all(folder / "original");
  write_pairs();
  write("train.en", "A dog.\nA man.\n \nA dog and a man.\nA child.\n");
  expect_refusal("train.en: has nothing in line 3");
  std::filesystem::remove_all(folder / "original");
  write("train.csv", news(10) + "\"1\",\"\",\" \"\n");
  expect_refusal("train.csv: line 11 is an empty document");
  std::filesystem::remove_all(folder / "original");
  write("input.txt", "");
  expect_refusal("input.txt: is an empty document");
}

TEST_F(StageTextTest, UnequalCountsOfLinesAreNamed) {
  write_pairs();
  write("train.en", "A dog.\nA man.\n");
  expect_refusal("train.de: has 5 lines but ");
  std::filesystem::remove(folder / "original/train.en");
  expect_refusal("in de only");
  write_pairs();
  std::filesystem::remove(folder / "original/val.de");
  expect_refusal("has no val.de");
}

TEST_F(StageTextTest, AClassOutsideTheClassesIsNamedWithItsLine) {
  write("train.csv", news(40));
  write("test.csv", news(4) + "\"3\",\"a third class\",\"and its text\"\n");
  expect_refusal("test.csv: line 5 has the class 3, which is none of the 2 classes");
  write("test.csv", news(4));
  write("classes.txt", "World\n");
  expect_refusal(": line 2 has the class 2, which is none of the 1 classes");
  write("train.csv", news(2) + "\"World\",\"a class by name\",\"and its text\"\n");
  expect_refusal("train.csv: line 3 has the class 'World'");
}

TEST_F(StageTextTest, ARaggedRowIsNamedWithItsLine) {
  write("train.csv", news(2) + "\"1\",\"no third field\"\n");
  expect_refusal("train.csv: line 3 has 2 fields, not 3");
  write("train.csv", news(2) + "\"1\",\"never closed,\"text\"\n");
  expect_refusal("train.csv: has text behind a closing quote in line 3");
  write("train.csv", news(2) + "\"1\",\"fine\",\"never closed\n");
  expect_refusal("train.csv: has a quote in line 3 that is never closed");
}

TEST_F(StageTextTest, TextShorterThanABlockIsRefused) {
  write("input.txt", "To be or not to be");
  expect_refusal("split train, and a block takes 256");
  write("second.txt", "another");
  expect_refusal("is a second text beside");
}

}  // namespace
}  // namespace dtrain::data
