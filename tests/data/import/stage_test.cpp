#include "data/import/stage.hpp"
#include "core/file_descriptor.hpp"
#include "core/sha256.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "data/folder.hpp"
#include "data/import/format_table.hpp"
#include "data/loader.hpp"
#include "data/shards/column.hpp"
#include "data/shards/dataset_folder.hpp"
#include "data/shards/shard.hpp"
#include "data/shards/shard_writer.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/library.hpp"
#include "h5/types.hpp"

namespace dtrain::data {
namespace {

using testing::error_of;
using testing::expect_data_error;
using ::testing::HasSubstr;
using testing::idx_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

/// Pixel of image `i`: says which image it is.
int pixel(std::size_t element) { return static_cast<int>((element / 16 * 7 + element % 16) % 256); }

/// 200 training and 30 test images of 4 x 4, ten classes.
void write_digits(const std::filesystem::path& folder, int train = 200, int labels = 200) {
  std::filesystem::create_directories(folder);
  write_bytes(folder / "train-images-idx3-ubyte", idx_bytes({train, 4, 4}, pixel));
  write_bytes(folder / "train-labels-idx1-ubyte", idx_bytes({labels}, [](std::size_t i) { return i % 10; }));
  write_bytes(folder / "t10k-images-idx3-ubyte", idx_bytes({30, 4, 4}, pixel));
  write_bytes(folder / "t10k-labels-idx1-ubyte", idx_bytes({30}, [](std::size_t i) { return i % 10; }));
}

class StageTest : public ::testing::Test {
 protected:
  StageOptions options() const {
    return {.name = "digits", .from = folder / "original", .data_root = folder / "staged"};
  }
  /// What staging ends with; also asserts that no dataset is left, whole or half.
  Error refusal(const StageOptions& given) {
    Error error = error_of([&] { stage(given, library); });
    EXPECT_FALSE(std::filesystem::exists(given.data_root / given.name / "dataset.json"));
    EXPECT_FALSE(std::filesystem::exists(given.data_root / (given.name + ".partial")));
    return error;
  }
  TemporaryFolder folder;
  h5::Library library;
};

TEST_F(StageTest, IdxGivesTheContractsSplitsAndStatistics) {
  write_digits(folder / "original");
  const DatasetInfo info = stage(options(), library);
  EXPECT_EQ(info.task, "image_classification");
  EXPECT_EQ(info.classes.size(), 10);
  EXPECT_EQ(info.shape, (std::vector<std::int64_t>{1, 4, 4}));
  EXPECT_EQ(info.samples("train"), 180);
  EXPECT_EQ(info.samples("validation"), 20);
  EXPECT_EQ(info.samples("test"), 30);
  ASSERT_EQ(info.sources.size(), 4);

  // The same numbers from the file, and statistics that agree with a plain computation over train.
  const Dataset dataset = Dataset::open(folder / "staged" / "digits", library);
  EXPECT_EQ(dataset.info().mean, info.mean);
  EXPECT_EQ(dataset.info().sources[0].sha256, info.sources[0].sha256);
  HostArray inputs;
  HostArray targets;
  const auto ids = epoch_order(180, Order::identity, 0, 0);
  dataset.source("train")->gather(ids, inputs, targets);
  EXPECT_EQ(inputs.shape(), (std::vector<std::int64_t>{180, 1, 4, 4}));
  double sum = 0;
  double squares = 0;
  for (const std::uint8_t byte : inputs.as<std::uint8_t>()) {
    sum += byte / 255.0;
    squares += byte / 255.0 * (byte / 255.0);
  }
  const double n = 180 * 16;
  EXPECT_NEAR(info.mean[0], sum / n, 1e-12);
  EXPECT_NEAR(info.std_dev[0], std::sqrt(squares / n - sum / n * (sum / n)), 1e-12);
}

TEST_F(StageTest, TheTenthSetAsideIsStratifiedSeededAndDisjoint) {
  write_digits(folder / "original");
  stage(options(), library);
  const Dataset dataset = Dataset::open(folder / "staged" / "digits", library);
  std::multiset<std::string> images;
  std::vector<int> per_class(10, 0);
  for (const auto& [split, count] : {std::pair{"train", 180}, {"validation", 20}}) {
    HostArray inputs;
    HostArray targets;
    dataset.source(split)->gather(epoch_order(count, Order::identity, 0, 0), inputs, targets);
    for (int i = 0; i < count; ++i) {
      const auto* image = inputs.as<char>().data() + i * 16;
      images.emplace(image, image + 16);
      if (split == std::string("validation")) ++per_class[targets.as<std::int64_t>()[i]];
    }
  }
  EXPECT_THAT(per_class, ::testing::Each(2));
  std::multiset<std::string> originals;
  for (int i = 0; i < 200; ++i) {
    std::string image;
    for (int k = 0; k < 16; ++k) image += static_cast<char>(pixel(static_cast<std::size_t>(i * 16 + k)));
    originals.insert(image);
  }
  EXPECT_EQ(images, originals);

  StageOptions other = options();
  other.name = "other";
  other.seed = 2;
  stage(other, library);
  EXPECT_NE(sha256_of_file(folder / "staged/other/validation-00000-of-00001.h5", ExitCode::data),
            sha256_of_file(folder / "staged/digits/validation-00000-of-00001.h5", ExitCode::data));
}

TEST_F(StageTest, ManyShardsHoldWhatOneHolds) {
  write_digits(folder / "original");
  stage(options(), library);
  StageOptions cut = options();
  cut.name = "cut";
  cut.shards = 7;
  const DatasetInfo info = stage(cut, library);
  EXPECT_EQ(info.splits.at("train").shards.size(), 7);
  EXPECT_EQ(info.splits.at("train").shards[1].file, "train-00001-of-00007.h5");
  const auto ids = epoch_order(180, Order::shuffled, 3, 1);
  HostArray whole;
  HostArray pieces;
  HostArray targets;
  Dataset::open(folder / "staged/digits", library).source("train")->gather(ids, whole, targets);
  Dataset::open(folder / "staged/cut", library).source("train")->gather(ids, pieces, targets);
  EXPECT_TRUE(std::ranges::equal(whole.as<std::uint8_t>(), pieces.as<std::uint8_t>()));
}

TEST_F(StageTest, WithoutATestSplitTwentyPerCentAreSetAside) {
  write_digits(folder / "original");
  std::filesystem::remove(folder / "original/t10k-images-idx3-ubyte");
  std::filesystem::remove(folder / "original/t10k-labels-idx1-ubyte");
  const DatasetInfo info = stage(options(), library);
  EXPECT_EQ(info.samples("train"), 160);
  EXPECT_EQ(info.samples("validation"), 20);
  EXPECT_EQ(info.samples("test"), 20);
}

TEST_F(StageTest, TrainKeepsAllItsSamplesIfNoneAreToValidate) {
  write_digits(folder / "original");
  StageOptions given = options();
  given.no_validation = true;
  const DatasetInfo info = stage(given, library);
  EXPECT_EQ(info.samples("train"), 200);
  EXPECT_FALSE(info.splits.contains("validation"));
  EXPECT_FALSE(Dataset::open(folder / "staged/digits", library).has_split("validation"));
}

TEST_F(StageTest, AMissingSourceIsNamed) {
  StageOptions given = options();
  given.from = folder / "nowhere";
  expect_data_error(refusal(given), "nowhere: there is no such file or folder");
}

TEST_F(StageTest, MissingLabelsAreNamed) {
  write_digits(folder / "original");
  std::filesystem::remove(folder / "original/train-labels-idx1-ubyte");
  expect_data_error(refusal(options()), "has no labels beside train-images-idx3-ubyte");
}

TEST_F(StageTest, AFolderThatHoldsNothingKnownIsRefused) {
  std::filesystem::create_directories(folder / "original");
  write_bytes(folder / "original/readme.md", "hello");
  expect_data_error(refusal(options()), "holds no files that dtrain recognises");
}

TEST(FormatTableTest, AFormatThatIsReadIsDescribedAndCanBeRecognised) {
  std::set<std::string> names;
  for (const Format& format : formats()) {
    EXPECT_TRUE(names.insert(format.name).second) << format.name;
    const bool tested = format.recognises != nullptr || format.recognises_file != nullptr;
    EXPECT_EQ(tested, format.read != nullptr) << format.name;
    EXPECT_EQ(*format.description == '\0', format.read == nullptr) << format.name;
  }
}

TEST_F(StageTest, ATruncatedFileIsNamedWithWhatItLacks) {
  write_digits(folder / "original");
  std::filesystem::resize_file(folder / "original/train-images-idx3-ubyte", 1000);
  expect_data_error(
      refusal(options()),
      "train-images-idx3-ubyte: is truncated: its header promises 3200 bytes of values, it has 984");
}

TEST_F(StageTest, AFileCutInItsHeaderIsRefused) {
  write_digits(folder / "original");
  std::filesystem::resize_file(folder / "original/train-images-idx3-ubyte", 10);
  expect_data_error(refusal(options()), "truncated in its header");
}

TEST_F(StageTest, AFileThatIsLongerThanItsHeaderSaysIsRefused) {
  write_digits(folder / "original");
  std::ofstream(folder / "original/train-labels-idx1-ubyte", std::ios::app) << "x";
  expect_data_error(refusal(options()), "train-labels-idx1-ubyte: is longer");
}

TEST_F(StageTest, AFileThatIsNotIdxIsRefused) {
  write_digits(folder / "original");
  write_bytes(folder / "original/train-images-idx3-ubyte", "<html>404 Not Found</html>");
  expect_data_error(refusal(options()), "train-images-idx3-ubyte: is not an IDX file");
}

TEST_F(StageTest, CountsThatDifferAreRefusedWithBothNames) {
  write_digits(folder / "original", 200, 199);
  const Error error = refusal(options());
  expect_data_error(error, "train-images-idx3-ubyte: holds 200 samples but train-labels-idx1-ubyte has 199");
}

TEST_F(StageTest, AHeaderThatPromisesTheMoonAsksForNoMemory) {
  write_digits(folder / "original");
  std::string bytes = testing::read_bytes(folder / "original/train-images-idx3-ubyte");
  for (const std::size_t at : {4, 8, 12}) bytes[at] = 127;
  write_bytes(folder / "original/train-images-idx3-ubyte", bytes);
  expect_data_error(refusal(options()), "is truncated");
  // 2^24 x 2^20 x 2^20 values are none modulo 2^64, and none follow.
  const std::string header = {0, 0, 8, 3, 1, 0, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0};
  write_bytes(folder / "original/train-images-idx3-ubyte", header);
  expect_data_error(refusal(options()), "is truncated");
}

TEST_F(StageTest, AnExistingNameIsKeptUnlessOverwriteIsAsked) {
  write_digits(folder / "original");
  stage(options(), library);
  const std::string before = testing::read_bytes(folder / "staged/digits/dataset.json");
  StageOptions again = options();
  again.seed = 9;
  const Error error = error_of([&] { stage(again, library); });
  expect_data_error(error, "there is already a dataset of this name");
  EXPECT_EQ(testing::read_bytes(folder / "staged/digits/dataset.json"), before);
  again.overwrite = true;
  stage(again, library);
  EXPECT_EQ(Dataset::open(folder / "staged/digits", library).info().seed, 9);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "staged"), {}), 1);
}

TEST_F(StageTest, OverwriteLeavesAFolderAloneThatDtrainDidNotWrite) {
  write_digits(folder / "original");
  StageOptions given = options();
  given.overwrite = true;
  for (const char* name : {"digits", "digits.partial"}) {
    std::filesystem::create_directories(folder / "staged" / name);
    write_bytes(folder / "staged" / name / "thesis.txt", "years of work");
    const Error error = error_of([&] { stage(given, library); });
    expect_data_error(error, "was not written by dtrain");
    EXPECT_THAT(error.what(), HasSubstr("thesis.txt"));
    EXPECT_EQ(testing::read_bytes(folder / "staged" / name / "thesis.txt"), "years of work");
    std::filesystem::remove_all(folder / "staged" / name);
  }
}

TEST_F(StageTest, OverwriteFollowsNoLink) {
  write_digits(folder / "original");
  stage(options(), library);
  std::filesystem::rename(folder / "staged/digits", folder / "elsewhere");
  StageOptions given = options();
  given.overwrite = true;
  for (const char* name : {"digits", "digits.partial"}) {
    std::filesystem::create_directory_symlink(folder / "elsewhere", folder / "staged" / name);
    expect_data_error(error_of([&] { stage(given, library); }), "is not a folder that dtrain wrote");
    std::filesystem::remove(folder / "staged" / name);
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "elsewhere/dataset.json"));
}

TEST_F(StageTest, LinksInThePlaceOfStagedFilesAreReplacedAndNotFollowed) {
  write_digits(folder / "original");
  stage(options(), library);
  std::filesystem::rename(folder / "staged/digits", folder / "elsewhere");
  std::filesystem::create_directory(folder / "staged/digits");
  for (const auto& entry : std::filesystem::directory_iterator(folder / "elsewhere"))
    std::filesystem::create_symlink(entry.path(), folder / "staged/digits" / entry.path().filename());
  const std::string before = testing::read_bytes(folder / "elsewhere/dataset.json");
  StageOptions again = options();
  again.overwrite = true;
  again.seed = 9;
  stage(again, library);
  EXPECT_EQ(Dataset::open(folder / "staged/digits", library).info().seed, 9);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "staged/digits"))
    EXPECT_FALSE(entry.is_symlink()) << entry.path();
  EXPECT_EQ(testing::read_bytes(folder / "elsewhere/dataset.json"), before);
}

TEST_F(StageTest, OneProcessStagesANameAtATime) {
  write_digits(folder / "original");
  const auto partial = folder / "staged/digits.partial";
  std::filesystem::create_directories(partial);
  write_bytes(partial / "train-00000-of-00002.h5", "half of another's");
  {
    const FileDescriptor other(::open(partial.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
    const Error error = error_of([&] { stage(options(), library); });
    EXPECT_THAT(error.what(), HasSubstr("another process stages a dataset of this name"));
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(testing::read_bytes(partial / "train-00000-of-00002.h5"), "half of another's");
  }
  stage(options(), library);
  EXPECT_FALSE(std::filesystem::exists(partial));
}

TEST_F(StageTest, WhatOthersPutIntoADatasetStaysWhenItIsReplaced) {
  write_digits(folder / "original");
  stage(options(), library);
  write_bytes(folder / "staged/digits/notes.txt", "mine");
  std::filesystem::create_directory(folder / "staged/digits/plots");
  StageOptions again = options();
  again.overwrite = true;
  again.seed = 9;
  stage(again, library);
  EXPECT_EQ(Dataset::open(folder / "staged/digits", library).info().seed, 9);
  EXPECT_EQ(testing::read_bytes(folder / "staged/digits/notes.txt"), "mine");
  EXPECT_THAT(others_in(folder / "staged/digits"), ::testing::ElementsAre("notes.txt", "plots"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "staged"), {}), 1);
}

TEST_F(StageTest, OnlyNamesThatStagingGivesAreItsOwn) {
  for (const char* name : {"dataset.json", "dataset.json.partial", "train-00000-of-00001.h5",
                           "validation-00000-of-00001.h5", "test-12345-of-99999.h5.partial"})
    EXPECT_TRUE(is_staged_file(name)) << name;
  for (const char* name : {"train.h5", "train-00000-of-00001.h5.bak", "mytrain-00000-of-00001.h5",
                           "train-0-of-1.h5", "dataset.json.orig", ".partial", "train-00000-of-.h5"})
    EXPECT_FALSE(is_staged_file(name)) << name;
}

TEST_F(StageTest, AFewDatesInAnotherOrderAreRefused) {
  std::string rows = "when,b,kind\n";
  for (int i = 0; i < 40; ++i)
    rows +=
        "28.0" + std::to_string(1 + i % 9) + ".2024," + std::to_string(i) + (i % 2 == 0 ? ",x\n" : ",y\n");
  write_bytes(folder / "table.csv", rows);
  expect_data_error(refusal({.name = "table", .from = folder / "table.csv", .data_root = folder / "staged"}),
                    "dates in 0 of 40 cells of the column when");
}

TEST_F(StageTest, AClassWhoseNameIsNotUtf8IsRefusedBeforeAnythingIsWritten) {
  write_bytes(folder / "table.csv", "a,b,kind\n1,2,Zw\xF6lf\n3,4,drei\n");
  StageOptions given{.name = "table", .from = folder / "table.csv", .data_root = folder / "staged"};
  const Error error = refusal(given);
  expect_data_error(error, "is not UTF-8");
  EXPECT_THAT(error.what(), HasSubstr("line 2"));
  EXPECT_FALSE(std::filesystem::exists(folder / "staged"));
  write_bytes(folder / "table.csv", "a,b,k\xF6nd\n1,2,x\n3,4,y\n");
  expect_data_error(refusal(given), "is not UTF-8");
}

TEST_F(StageTest, AFileWhoseNameIsNotUtf8IsRefusedBeforeAnythingIsWritten) {
  std::filesystem::create_directories(folder / "in");
  std::string rows = "a,b,kind\n";
  for (int i = 0; i < 40; ++i) rows += std::to_string(i) + ",2," + (i % 2 == 0 ? "x" : "y") + "\n";
  write_bytes(folder / "in/caf\xE9.csv", rows);
  StageOptions given{.name = "table", .from = folder / "in", .data_root = folder / "staged"};
  const Error error = refusal(given);
  expect_data_error(error, "is not UTF-8");
  EXPECT_THAT(error.what(), HasSubstr("caf\\xe9"));
  EXPECT_FALSE(std::filesystem::exists(folder / "staged"));
}

TEST_F(StageTest, AFifoIsNotWaitedFor) {
  const auto path = folder / "in";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  alarm(30);
  for (const char* format : {"", "csv", "idx", "cifar10", "text", "imdb"}) {
    StageOptions given{.name = "set", .from = path, .data_root = folder / "staged"};
    given.format = format;
    EXPECT_EQ(refusal(given).code(), ExitCode::data) << format;
  }
  StageOptions arrays{.name = "set", .from = path, .data_root = folder / "staged"};
  arrays.format = "hdf5";
  arrays.inputs = "/x";
  arrays.targets = "/y";
  expect_data_error(refusal(arrays), "is a FIFO");
  alarm(0);
}

TEST_F(StageTest, DatasetJsonIsLimitedInDepthAndNumberBeforeItIsParsed) {
  std::filesystem::create_directory(folder / "set");
  std::string deep(100'000, '[');
  write_bytes(folder / "set/dataset.json", deep);
  expect_data_error(error_of([&] { read_dataset_info(folder / "set"); }), "nested in more than 64 levels");
  std::string wide = "[0";
  for (int i = 0; i < 5'000'000; ++i) wide += ",0";
  write_bytes(folder / "set/dataset.json", wide + "]");
  expect_data_error(error_of([&] { read_dataset_info(folder / "set"); }), "holds more than 4000000 values");
  std::filesystem::remove(folder / "set/dataset.json");
  ASSERT_EQ(::mkfifo((folder / "set/dataset.json").c_str(), 0600), 0);
  alarm(20);
  expect_data_error(error_of([&] { read_dataset_info(folder / "set"); }), "is a FIFO");
  alarm(0);
}

TEST_F(StageTest, WhatAKilledRunLeftIsReplacedAndNeverOpened) {
  write_digits(folder / "original");
  std::filesystem::create_directories(folder / "staged/digits.partial");
  write_bytes(folder / "staged/digits.partial/train-00000-of-00009.h5", "half");
  EXPECT_THAT(error_of([&] { find_dataset("digits", folder / "staged"); }).what(),
              HasSubstr("no such dataset"));
  stage(options(), library);
  EXPECT_FALSE(std::filesystem::exists(folder / "staged/digits/train-00000-of-00009.h5"));
}

TEST_F(StageTest, AFolderWithoutDatasetJsonIsNoDataset) {
  write_digits(folder / "original");
  stage(options(), library);
  std::filesystem::remove(folder / "staged/digits/dataset.json");
  const Error error = error_of([&] { Dataset::open(folder / "staged/digits", library); });
  expect_data_error(error, "digits: has no dataset.json");
}

TEST_F(StageTest, DatasetJsonIsCheckedFieldByField) {
  write_digits(folder / "original");
  stage(options(), library);
  const auto file = folder / "staged/digits/dataset.json";
  const std::string good = testing::read_bytes(file);
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"dtrain.dataset\"", "\"other\"", "another format"},
      {"\"version\": 1", "\"version\": 2", "version 2"},
      {"\"task\": \"image", "\"task\": \"mirage", "unknown task"},
      {"\"samples\": 180", "\"samples\": 181", "181 samples"},
      {"\"shape\"", "\"shapes\"", "no field shape"},
      {"\"train-0", "\"../train-0", "not a plain file name"},
      {"{", "", "is not JSON"},
  };
  for (const auto& [from, to, words] : cases) {
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    write_bytes(file, bad);
    const Error error = error_of([&] { Dataset::open(folder / "staged/digits", library); });
    expect_data_error(error, words);
    EXPECT_THAT(error.what(), HasSubstr("dataset.json"));
  }
}

TEST_F(StageTest, AFlippedByteInAShardIsFoundBeforeItIsUsed) {
  write_digits(folder / "original");
  stage(options(), library);
  const auto file = folder / "staged/digits/train-00000-of-00001.h5";
  std::string bytes = testing::read_bytes(file);
  std::string image;  // one of train's, to find the place in the file
  {
    HostArray inputs;
    HostArray targets;
    Dataset::open(folder / "staged/digits", library)
        .source("train")
        ->gather(std::vector<std::int64_t>{100}, inputs, targets);
    image.assign(static_cast<const char*>(inputs.data()), 16);
  }
  const std::size_t at = bytes.find(image);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 3] = static_cast<char>(bytes[at + 3] ^ 16);
  write_bytes(file, bytes);
  const Dataset dataset = Dataset::open(folder / "staged/digits", library);
  const std::string words = "train-00000-of-00001.h5: is damaged: chunk 0 of dataset /inputs";
  // A split that is kept in memory shows it when it is opened, another one when the chunk is first touched.
  expect_data_error(error_of([&] { dataset.source("train"); }), words);
  const auto source = dataset.source("train", {.cache_bytes = 0});
  HostArray inputs;
  HostArray targets;
  expect_data_error(error_of([&] { source->gather(std::vector<std::int64_t>{0}, inputs, targets); }), words);
}

TEST_F(StageTest, ATruncatedShardIsRefusedWhenItIsOpened) {
  write_digits(folder / "original");
  stage(options(), library);
  const auto file = folder / "staged/digits/train-00000-of-00001.h5";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  const Error error = error_of([&] { Dataset::open(folder / "staged/digits", library).source("train"); });
  expect_data_error(error, "train-00000-of-00001.h5");
}

TEST_F(StageTest, AShardOfAnotherSplitIsRefused) {
  write_digits(folder / "original");
  stage(options(), library);
  std::filesystem::copy_file(folder / "staged/digits/test-00000-of-00001.h5",
                             folder / "staged/digits/train-00000-of-00001.h5",
                             std::filesystem::copy_options::overwrite_existing);
  const Error error = error_of([&] { Dataset::open(folder / "staged/digits", library).source("train"); });
  expect_data_error(error, "belongs to split 'test'");
}

TEST_F(StageTest, UnusableNamesAreUsageErrors) {
  for (const char* name : {"", "a/b", "..", "x.partial"}) {
    StageOptions given = options();
    given.name = name;
    EXPECT_EQ(error_of([&] { given.validate(); }).code(), ExitCode::usage) << name;
  }
}

TEST_F(StageTest, EverySyntheticTaskSurvivesTheWayThroughFiles) {
  for (const std::string& task : synthetic_tasks()) {
    const SyntheticSpec spec{
        .task = task, .train_samples = 300, .validation_samples = 40, .test_samples = 50, .seed = 3};
    StageOptions given{.name = task, .data_root = folder / "staged", .shards = 3};
    const DatasetInfo info = stage_synthetic(given, spec, library);
    EXPECT_EQ(info.samples("train"), 300) << task;
    const Dataset staged = Dataset::open(folder / "staged" / task, library);
    const Dataset made = synthetic_dataset(spec);
    EXPECT_EQ(staged.info().shape, made.info().shape) << task;
    EXPECT_EQ(staged.info().classes, made.info().classes) << task;
    EXPECT_EQ(staged.info().tokenizer.has_value(), made.info().tokenizer.has_value()) << task;
    for (const char* split : {"train", "validation", "test"}) {
      const std::int64_t n = info.samples(split);
      const auto ids = epoch_order(n, Order::shuffled, 1, 1);
      std::array<HostArray, 4> arrays;
      staged.source(split)->gather(ids, arrays[0], arrays[1]);
      made.source(split)->gather(ids, arrays[2], arrays[3]);
      for (const std::size_t k : {0, 1}) {
        EXPECT_EQ(arrays[k].shape(), arrays[k + 2].shape()) << task;
        ASSERT_EQ(arrays[k].bytes(), arrays[k + 2].bytes()) << task;
        EXPECT_EQ(std::memcmp(arrays[k].data(), arrays[k + 2].data(), arrays[k].bytes()), 0) << task << split;
      }
    }
  }
}

}  // namespace
}  // namespace dtrain::data
