#include "data/formats/tables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "data/folder.hpp"
#include "data/formats/table_text.hpp"
#include "data/loader.hpp"
#include "h5/library.hpp"

namespace dtrain::data {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::write_bytes;

/// 40 patients: an age, a colour with a gap in each fifth row, a weight with a gap in each fourth, a verdict.
std::string patients(bool header, int rows = 40) {
  std::string text = header ? "age,colour,weight,verdict\n" : "";
  const char* colours[] = {"red", "green", "blue"};
  for (int i = 0; i < rows; ++i)
    text += std::to_string(20 + i) + "," + (i % 5 == 4 ? "?" : colours[i % 3]) + "," +
            (i % 4 == 3 ? "" : std::to_string(50.5 + i)) + "," + (i % 2 == 0 ? "well" : "ill") + "\n";
  return text;
}

struct Rows {
  std::vector<std::vector<float>> inputs;
  std::vector<std::int64_t> classes;
  std::vector<float> numbers;
};

class TablesTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder / "in"); }
  StageOptions options() const {
    return {.name = "table",
            .from = folder / "in",
            .data_root = folder / "staged",
            .standardize = "off",
            .overwrite = true};
  }
  Rows rows_of(const std::string& split) const {
    const Dataset dataset = Dataset::open(folder / "staged/table", library);
    const std::int64_t count = dataset.info().samples(split);
    HostArray inputs;
    HostArray targets;
    dataset.source(split)->gather(epoch_order(count, Order::identity, 0, 0), inputs, targets);
    Rows rows;
    const auto width = static_cast<std::size_t>(inputs.shape().at(1));
    const auto values = inputs.as<float>();
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      rows.inputs.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(i * width),
                               values.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
    if (targets.type() == ElementType::int64)
      rows.classes.assign(targets.as<std::int64_t>().begin(), targets.as<std::int64_t>().end());
    else
      rows.numbers.assign(targets.as<float>().begin(), targets.as<float>().end());
    return rows;
  }
  void expect_refused(const StageOptions& given, ExitCode code, const std::string& words) {
    const Error error = error_of([&] { stage(given, library); });
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(words));
    EXPECT_FALSE(error.advice().empty());
    EXPECT_FALSE(std::filesystem::exists(folder / "staged/table"));
    EXPECT_FALSE(std::filesystem::exists(folder / "staged/table.partial"));
  }
  TemporaryFolder folder;
  mutable h5::Library library;
};

TEST_F(TablesTest, LabelsAreMappedAndGapsFilledFromTrain) {
  write_bytes(folder / "in/patients.csv", patients(true));
  const DatasetInfo info = stage(options(), library);
  EXPECT_EQ(info.task, "table_classification");
  EXPECT_THAT(info.classes, ElementsAre("ill", "well"));
  EXPECT_THAT(info.shape, ElementsAre(7));
  ASSERT_EQ(info.columns.size(), 7);
  std::vector<std::string> names;
  for (const InputColumn& column : info.columns)
    names.push_back(column.name + (column.label.empty() ? "" : "=" + column.label) +
                    (column.marks_gaps ? "?" : ""));
  EXPECT_THAT(
      names, ElementsAre("age", "colour=blue", "colour=green", "colour=red", "colour?", "weight", "weight?"));
  EXPECT_EQ(info.samples("train"), 32);
  EXPECT_EQ(info.samples("validation"), 4);
  EXPECT_EQ(info.samples("test"), 4);

  // Every row is there once and says what the text said; a gap has the mean of train's values and its mark.
  const DatasetInfo read = Dataset::open(folder / "staged/table", library).info();
  ASSERT_EQ(read.columns.size(), 7);
  const double filled = read.columns[5].filled_with;
  double sum = 0;
  double count = 0;
  std::map<int, int> seen;
  for (const char* split : {"train", "validation", "test"}) {
    const Rows rows = rows_of(split);
    for (std::size_t k = 0; k < rows.inputs.size(); ++k) {
      const auto& row = rows.inputs[k];
      const int i = static_cast<int>(row[0]) - 20;
      ++seen[i];
      EXPECT_EQ(rows.classes[k], i % 2 == 0 ? 1 : 0);
      const bool no_colour = i % 5 == 4;
      EXPECT_EQ(row[4], no_colour ? 1.0F : 0.0F);
      if (!no_colour) {
        EXPECT_EQ(row[1], i % 3 == 2 ? 1.0F : 0.0F);
        EXPECT_EQ(row[2], i % 3 == 1 ? 1.0F : 0.0F);
        EXPECT_EQ(row[3], i % 3 == 0 ? 1.0F : 0.0F);
      } else {
        EXPECT_FLOAT_EQ(row[3], static_cast<float>(read.columns[3].filled_with));
      }
      const bool no_weight = i % 4 == 3;
      EXPECT_EQ(row[6], no_weight ? 1.0F : 0.0F);
      EXPECT_FLOAT_EQ(row[5], no_weight ? static_cast<float>(filled) : 50.5F + static_cast<float>(i));
      if (split == std::string("train") && !no_weight) {
        sum += row[5];
        count += 1;
      }
    }
  }
  EXPECT_EQ(seen.size(), 40);
  EXPECT_NEAR(filled, sum / count, 1e-9);
}

TEST_F(TablesTest, WithoutHeaderColumnsHaveNumbers) {
  write_bytes(folder / "in/patients.data", patients(false));
  StageOptions given = options();
  given.target = "3";
  given.ignore = "1";
  const DatasetInfo info = stage(given, library);
  EXPECT_THAT(info.classes, ElementsAre("ill", "well"));
  EXPECT_EQ(info.columns.at(0).name, "0");
  EXPECT_THAT(info.shape, ElementsAre(3));  // 0, 2 and the gaps of 2
}

TEST_F(TablesTest, NumbersAreStandardizedByTrainAloneUnlessThatIsOff) {
  write_bytes(folder / "in/patients.csv", patients(true));
  StageOptions given = options();
  given.standardize.clear();
  const DatasetInfo info = stage(given, library);
  const Rows rows = rows_of("train");
  for (const std::size_t number : {0, 5}) {
    double sum = 0;
    double squares = 0;
    for (const auto& row : rows.inputs) {
      sum += row[number];
      squares += row[number] * row[number];
    }
    const auto n = static_cast<double>(rows.inputs.size());
    EXPECT_NEAR(sum / n, 0, 1e-6);
    EXPECT_NEAR(squares / n, 1, 1e-5);
  }
  for (const auto& row : rows.inputs)
    for (const std::size_t mark : {4, 6}) EXPECT_TRUE(row[mark] == 0.0F || row[mark] == 1.0F);
  // The age of each row comes back from what dataset.json says.
  for (const auto& row : rows_of("test").inputs) {
    const double age = row[0] * info.columns[0].scale + info.columns[0].shift;
    EXPECT_NEAR(age, std::round(age), 1e-4);
  }
}

TEST_F(TablesTest, TargetsOfARegressionKeepTheirUnitsBesideAScale) {
  std::string text = "x,constant,cost,stay\n";
  for (int i = 0; i < 60; ++i) text += std::to_string(i) + ",0.1," + std::to_string(1e6 + 3 * i) + ",0.3\n";
  write_bytes(folder / "in/costs.csv", text);
  StageOptions given = options();
  given.standardize.clear();
  given.target = "cost,stay";
  stage(given, library);
  const DatasetInfo info = Dataset::open(folder / "staged/table", library).info();
  const Rows rows = rows_of("train");
  double mean = 0;
  for (std::size_t k = 0; k < rows.numbers.size(); k += 2) mean += rows.numbers[k];
  mean /= static_cast<double>(rows.inputs.size());
  double squares = 0;
  for (std::size_t k = 0; k < rows.numbers.size(); k += 2) {
    squares += (rows.numbers[k] - mean) * (rows.numbers[k] - mean);
    EXPECT_GE(rows.numbers[k], 1e6F);
  }
  ASSERT_EQ(info.target_scales.size(), 2);
  EXPECT_NEAR(info.target_scales[0].shift, mean, 1e-6);
  EXPECT_NEAR(info.target_scales[0].scale, std::sqrt(squares / static_cast<double>(rows.inputs.size())),
              1e-6);
  // What never changes becomes 0, not a tiny number over another one.
  EXPECT_EQ(info.target_scales[1], (TargetScale{.shift = double{0.3F}, .scale = 1}));
  for (const auto& row : rows.inputs) EXPECT_EQ(row[1], 0.0F);
  given.standardize = "off";
  EXPECT_TRUE(stage(given, library).target_scales.empty());
  given.standardize = "maybe";
  std::filesystem::remove_all(folder / "staged/table");
  expect_refused(given, ExitCode::usage, "--standardize maybe: is neither on nor off");
}

TEST_F(TablesTest, ANumericTargetIsClassesOrARegressionByAStatedRule) {
  std::string text = "x,few,many,half\n";
  for (int i = 0; i < 60; ++i)
    text += std::to_string(i * 3 % 17) + "," + std::to_string(i % 4 - 1) + "," + std::to_string(i) + "," +
            std::to_string(i % 4) + ".5\n";
  write_bytes(folder / "in/numbers.csv", text);
  StageOptions given = options();
  given.target = "few";
  EXPECT_THAT(stage(given, library).classes, ElementsAre("-1", "0", "1", "2"));
  given.target = "many";
  EXPECT_EQ(stage(given, library).task, "regression");
  EXPECT_THAT(rows_of("test").numbers, ::testing::SizeIs(6));
  given.target = "half";
  EXPECT_EQ(stage(given, library).task, "regression");
  given.target = "few";
  given.task = "regression";
  EXPECT_EQ(stage(given, library).task, "regression");
  given.task = "";
  given.target = "many>29";
  EXPECT_THAT(stage(given, library).classes, ElementsAre("many<=29", "many>29"));
  const Rows rows = rows_of("validation");
  EXPECT_EQ(std::count(rows.classes.begin(), rows.classes.end(), 1), 3);  // stratified
}

TEST_F(TablesTest, EachFileIsASiteAndSplitsAreStratifiedByClassAndSite) {
  write_bytes(folder / "in/north.data", patients(false, 100));
  write_bytes(folder / "in/south.data", patients(false, 40));
  write_bytes(folder / "in/a-first.names", "not, a table\nat all\n");
  StageOptions given = options();
  given.target = "3";
  const DatasetInfo info = stage(given, library);
  EXPECT_THAT(info.sites, ElementsAre("north.data", "south.data"));
  const Dataset dataset = Dataset::open(folder / "staged/table", library);
  EXPECT_EQ(dataset.info().sites, info.sites);
  for (const auto& [split, north, south] :
       {std::tuple{"train", 40, 16}, {"validation", 5, 2}, {"test", 5, 2}}) {
    const auto sites = dataset.sites(split);
    const Rows rows = rows_of(split);
    std::map<std::pair<int, std::int64_t>, int> counts;
    for (std::size_t i = 0; i < sites.size(); ++i) ++counts[{sites[i], rows.classes[i]}];
    for (const std::int64_t label : {0, 1}) {
      EXPECT_EQ((counts[{0, label}]), north) << split;
      EXPECT_EQ((counts[{1, label}]), south) << split;
    }
  }
}

TEST_F(TablesTest, ASiteColumnOwnsTheRowsAndIsNoInput) {
  write_bytes(folder / "in/patients.csv", patients(true));
  StageOptions given = options();
  given.site = "verdict";
  given.target = "age";
  given.ignore = "colour";
  const DatasetInfo info = stage(given, library);
  EXPECT_EQ(info.task, "regression");
  EXPECT_THAT(info.sites, ElementsAre("ill", "well"));
  EXPECT_THAT(info.shape, ElementsAre(2));
}

TEST_F(TablesTest, FilesNamedAfterSplitsAreTheSplits) {
  write_bytes(folder / "in/train.csv", patients(true, 30));
  write_bytes(folder / "in/test.csv", patients(true, 10));
  const DatasetInfo info = stage(options(), library);
  EXPECT_EQ(info.samples("train"), 27);
  EXPECT_EQ(info.samples("test"), 10);
  EXPECT_TRUE(info.sites.empty());
  write_bytes(folder / "in/more.csv", patients(true, 10));
  std::filesystem::remove_all(folder / "staged/table");
  expect_refused(options(), ExitCode::data, "more.csv: is neither train, validation nor test");
}

TEST_F(TablesTest, QuotesSemicolonsAndWindowsLinesAreRead) {
  std::string text = "\xEF\xBB\xBFname;size;kind\r\n";
  for (int i = 0; i < 20; ++i)
    text += (i % 2 == 0 ? "\"a;\"\"b\"\"\"" : " plain ") + std::string(";") + std::to_string(i) + ".25;" +
            (i % 4 < 2 ? "x" : "y") + "\r\n\r\n";
  write_bytes(folder / "in/odd.csv", text);
  const DatasetInfo info = stage(options(), library);
  EXPECT_THAT(info.classes, ElementsAre("x", "y"));
  ASSERT_EQ(info.columns.size(), 2);
  EXPECT_EQ(info.columns[0].name, "name");
  EXPECT_EQ(info.columns[0].label, "plain");  // of two labels, the second in order; the other is a;"b"
}

TEST_F(TablesTest, WhatIsWrongWithATableIsSaidWithFileAndLine) {
  const auto refused = [&](const std::string& text, const std::string& words, const StageOptions& given) {
    write_bytes(folder / "in/bad.csv", text);
    expect_refused(given, ExitCode::data, words);
  };
  StageOptions given = options();
  refused("a,b,c\n1,2,x\n3,4\n5,6,y\n", "bad.csv: has 2 cells in line 3, but 3 in line 1", given);
  refused("a,b\n1,x\n2,?\n", "bad.csv: has no value in the target column b in line 3", given);
  refused("a,b\n1,\"x\n2,y\n", "bad.csv: has a quote in line 2 that is never closed", given);
  refused("a,b\n1,\"x\" z\n", "bad.csv: has text behind a closing quote in line 2", given);
  refused("", "bad.csv: holds no rows", given);
  refused("a,b,c\n1,?,x\n2,?,y\n", "has no value in the column b", given);
  given.site = "b";
  refused("a,b,c\n1,s,x\n2,,y\n", "bad.csv: has no site in line 3", given);
  given = options();
  write_bytes(folder / "in/bad.csv", "a,b\n1,x\n2,y\n");
  write_bytes(folder / "in/worse.csv", "a,d\n1,x\n2,y\n");
  expect_refused(given, ExitCode::data, "worse.csv: has other columns than");
}

TEST_F(TablesTest, OptionsThatDoNotFitAreUsageErrors) {
  write_bytes(folder / "in/patients.csv", patients(true));
  const auto refused = [&](const char* target, const char* ignore, const char* site, const char* task,
                           const std::string& words) {
    StageOptions given = options();
    given.target = target;
    given.ignore = ignore;
    given.site = site;
    given.task = task;
    expect_refused(given, ExitCode::usage, words);
  };
  refused("gender", "", "", "", "--target gender: there is no such column; use one of age, colour");
  refused("9", "", "", "", "--target 9: there is no such column");
  refused("", "sizes", "", "", "--ignore sizes: there is no such column");
  refused("", "", "ward", "", "--site ward: there is no such column");
  refused("verdict", "", "", "regression", "has labels in that column");
  refused("verdict>1", "", "", "", "has labels in that column");
  refused("age>old", "", "", "", "has no number behind >");
  refused("", "age,colour,weight", "", "", "leaves no column as input");
  refused("", "", "", "sorting", "--task sorting: is no task of a table");
}

TEST_F(TablesTest, ARareWordAmongFewNumbersIsRefused) {
  const auto rows = [](const std::string& word, int every) {
    std::string text = "size,kind\n";
    for (int i = 0; i < 200; ++i)
      text += (i % every == 1 ? word : std::to_string(i % 7)) + "," + (i % 2 == 0 ? "x" : "y") + "\n";
    return text;
  };
  write_bytes(folder / "in/rows.csv", rows("missing", 100));
  expect_refused(options(), ExitCode::data, "198 of 200 cells of the column size, and 'missing' in line 3");
  StageOptions gap = options();
  gap.na_values = "missing";
  EXPECT_EQ(stage(gap, library).columns.size(), 2);  // the number, and that it is missing
  for (const auto& [word, every] : {std::pair{"missing", 10}, {"6+", 100}}) {  // labels
    write_bytes(folder / "in/rows.csv", rows(word, every));
    EXPECT_EQ(stage(options(), library).columns.size(), 8) << word;
  }
}

TEST(TableTextTest, CellsOfAnyLengthAndPlaceAreRead) {
  const std::string lengthy(70'000, 'x');  // longer than what four bytes keep of a cell
  const std::string text = "first,second,third\n" + lengthy +
                           ",\"said \"\"yes\"\"\",1\n\n\"two\nlines\",,2\n" + std::string(100, 'y') + "," +
                           lengthy + ", far \n,NONE,NONE\n";
  const TableText table(text, "t.csv", 2, {"NONE"});
  ASSERT_EQ(table.rows(), 4);
  EXPECT_THAT(table.header(), ElementsAre("first", "second", "third"));
  EXPECT_EQ(table.cell(0, 0), lengthy);
  EXPECT_EQ(table.cell(0, 1), "said \"yes\"");
  EXPECT_EQ(table.cell(0, 2), "1");  // behind 70,000 others in its row
  EXPECT_EQ(table.cell(1, 0), "two\nlines");
  EXPECT_EQ(table.cell(1, 1), "");
  EXPECT_EQ(table.cell(2, 1), lengthy);
  EXPECT_EQ(table.cell(2, 2), "far");
  EXPECT_EQ(table.cell(3, 1), "");  // named as a gap
  EXPECT_THAT((std::vector{table.line(0), table.line(1), table.line(2), table.line(3)}),
              ElementsAre(2, 4, 6, 7));
}

TEST(TableTextTest, AHeaderKeepsWhatElsewhereIsAGap) {
  const TableText named("NONE,b\n1,NONE\n", "t.csv", 2, {"NONE"});
  EXPECT_THAT(named.header(), ElementsAre("NONE", "b"));
  EXPECT_EQ(named.cell(0, 1), "");
  const TableText headless("NONE,5\n1,NONE\n", "t.csv", 2, {"NONE"});
  ASSERT_EQ(headless.rows(), 2);
  EXPECT_EQ(headless.cell(0, 0), "");
}

TEST(TableTextTest, AScaleOfNumbersIsAHeader) {
  const auto rows = [](const char* text) { return TableText(text, "t.csv").rows(); };
  EXPECT_EQ(rows("400,402.5,405,protein\n0.1,0.3,0.2,12\n0.2,0.1,0.4,13\n"), 2);
  EXPECT_EQ(rows("country,1990,2000,2010\nPeru,1,2,4\nChad,3,5,6\n"), 2);
  EXPECT_EQ(rows("399,401,404,408,413,420,y\n.1,.3,.2,.5,.4,.6,1\n.2,.1,.3,.4,.2,.1,2\n"), 2);
  EXPECT_EQ(rows("1,2.5,4,5.5,7,8.5,10,11.5\n.1,.3,.2,.5,.4,.6,1,3\n.2,.1,.3,.4,.2,.1,2,3\n"), 2);
}

TEST(TableTextTest, NumbersThatRiseByChanceAreASample) {
  const auto rows = [](const char* text) { return TableText(text, "t.csv").rows(); };
  EXPECT_EQ(rows("1.5,2.5,3.75,Ann\n2.5,2,1,Bob\n"), 2);                                // by unequal steps
  EXPECT_EQ(rows("10,20,30,Ann\n40,50,60,Bob\n"), 2);                                   // as all rows do
  EXPECT_EQ(rows("10,20,30,Ann\n10,70,60,Bob\n"), 2);                                   // a value, once more
  EXPECT_EQ(rows("2,4,6,8,10,12,14,16\n4,6,8,10,12,14,16,18\n"), 2);                    // windows of a series
  EXPECT_EQ(rows("1,3,4,7,9,12,13,15\n0,0,1,3,3,5,6,7\n"), 2);                          // cumulative counts
  EXPECT_EQ(rows("5.1,3.5,1.4,0.2,unknown\n4.9,3,1.4,0.2,1\n4.7,3.2,1.3,0.2,2\n"), 3);  // four fall
}

TEST(TableTextTest, AFirstRowWithADateIsNoHeader) {
  EXPECT_EQ(TableText("2024-01-01,a\n2024-01-02,b\n", "t.csv").rows(), 2);
}

}  // namespace
}  // namespace dtrain::data
