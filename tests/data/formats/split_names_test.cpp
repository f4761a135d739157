#include "data/formats/split_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/folder.hpp"
#include "data/import/stage.hpp"
#include "h5/library.hpp"

namespace dtrain::data {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_bytes;

TEST(SplitNamesTest, TheWordsOfASplitAreThatSplit) {
  for (const char* split : {"train", "validation", "test"})
    for (const std::string& word : words_of_split(split)) EXPECT_EQ(split_of_word(word), split) << word;
  EXPECT_THAT(words_of_split("test"), ::testing::ElementsAre("test", "testing", "holdout"));
}

TEST(SplitNamesTest, FilesThatAreHeldOutByNameOrFolderAreNotTrainedOn) {
  const TemporaryFolder folder;
  h5::Library library;
  const auto table = [&](const std::string& name, int rows) {
    std::string text = "a,b,kind\n";
    for (int i = 0; i < rows; ++i) text += std::to_string(i) + ",2," + (i % 2 == 0 ? "x" : "y") + "\n";
    std::filesystem::create_directories((folder / name).parent_path());
    write_bytes(folder / name, text);
  };
  const auto samples = [&](const std::string& from, const std::string& split) {
    StageOptions given{.name = from, .from = folder / from, .data_root = folder / "staged"};
    stage(given, library);
    return Dataset::open(folder / "staged" / from, library).info().samples(split);
  };
  table("capitals/Train.csv", 40);
  table("capitals/Test.csv", 8);
  EXPECT_EQ(samples("capitals", "test"), 8);
  table("folders/train/part1.csv", 30);
  table("folders/train/part2.csv", 10);
  table("folders/test/part1.csv", 6);
  EXPECT_EQ(samples("folders", "test"), 6);
  table("alone/data.csv", 40);
  table("alone/test-2.csv", 8);
  const Error alone = error_of([&] { samples("alone", "train"); });
  EXPECT_EQ(alone.code(), ExitCode::data);
  EXPECT_THAT(alone.what(), HasSubstr("held out by its name, and no file is called train"));
  table("sites/testville.csv", 40);  // begins with a split, and is none
  table("sites/valencia.csv", 40);
  EXPECT_EQ(samples("sites", "train"), 64);
  table("clinics/north/data.csv", 40);
  table("clinics/south/data.csv", 40);
  EXPECT_EQ(samples("clinics", "train"), 64);
  EXPECT_THAT(Dataset::open(folder / "staged/clinics", library).info().sites,
              ::testing::ElementsAre("north/data.csv", "south/data.csv"));
}

}  // namespace
}  // namespace dtrain::data
