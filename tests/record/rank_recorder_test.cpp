#include "record/rank_recorder.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/file_size_limit.hpp"
#include "record/run_folder.hpp"
#include "record/table_file.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::record {
namespace {

class RankRecorderTest : public testing::Test {
 protected:
  RankRecorderTest() { create_run_folder(folder_.path()); }

  RankRecorderOptions options() const {
    return {.path = rank_path(folder_.path(), 0), .flush_interval_s = 3600, .start_s = steady_s()};
  }

  Table read(const std::string& name) {
    const auto lock = library_.lock();
    const h5::File file = h5::open_file(options().path, h5::Access::read);
    return read_table(file.id(), name);
  }

  h5::Library library_;
  test::ScratchFolder folder_;
};

TEST_F(RankRecorderTest, EverythingIsThereFromTheStart) {
  const RankRecorder recorder(library_, options());
  EXPECT_EQ(read("steps").rows, 0U);
  EXPECT_EQ(read("epochs").order.front(), "epoch");
  EXPECT_EQ(read("events").order, (std::vector<std::string>{"time_s", "kind", "detail"}));
  EXPECT_EQ(read("samples").order, (std::vector<std::string>{"epoch", "hash"}));
  EXPECT_EQ(read("traffic").order,
            (std::vector<std::string>{"epoch", "peer", "bytes_sent", "bytes_received"}));
}

TEST_F(RankRecorderTest, ARunThatGoesOnKeepsTheRowsUpToWhereItStood) {
  {
    RankRecorder recorder(library_, options());
    for (std::int64_t step = 1; step <= 6; ++step) {
      recorder.step({.step = step, .epoch = (step + 2) / 3, .loss = 0.5 * static_cast<double>(step)});
    }
    for (std::int64_t epoch = 1; epoch <= 2; ++epoch) {
      recorder.epoch({.epoch = epoch, .samples = 10 * epoch});
      recorder.samples(epoch, ~std::uint64_t{0} - static_cast<std::uint64_t>(epoch));
      recorder.traffic({.epoch = epoch, .peer = 3, .bytes_sent = 100 * epoch, .bytes_received = 7});
    }
    recorder.event("checkpoint", "step 4");
  }
  auto later = options();
  later.kept = Kept{.step = 4, .epoch = 1};
  RankRecorder recorder(library_, later);
  EXPECT_EQ(read("steps").rows, 4U) << "at once: a kill must not lose them";
  recorder.step({.step = 5, .epoch = 2, .loss = 7});
  recorder.event("resumed", "from step-00000004");
  recorder.close();
  EXPECT_EQ(read("steps").column("loss"), (std::vector<double>{0.5, 1, 1.5, 2, 7}));
  EXPECT_EQ(read("epochs").column("samples"), std::vector<double>{10});
  EXPECT_EQ(read("samples").column("hash"), std::vector<double>{-2});
  EXPECT_EQ(read("traffic").column("bytes_sent"), std::vector<double>{100});
  EXPECT_EQ(read("events").texts.at("kind"), (std::vector<std::string>{"checkpoint", "resumed"}));
  EXPECT_FALSE(std::filesystem::exists(later.path + ".partial"));
}

/// Such a file lacks the traffic, and the times at which steps ended.
TEST_F(RankRecorderTest, ARunThatGoesOnKeepsTheRowsOfAnOlderVersion) {
  {
    const auto lock = library_.lock();
    const h5::File file = h5::create_file(options().path);
    auto columns = columns_of<StepRow>();
    columns.pop_back();
    const StepRow row{.step = 1, .epoch = 1, .loss = 0.5};
    TableFile(file.id(), "steps", columns, sizeof(StepRow), 8).append(&row, 1);
    make_table<RankEpochRow>(file.id(), "epochs", 8);
    make_table<EventRow>(file.id(), "events", 8);
    make_table<SamplesRow>(file.id(), "samples", 8);
  }
  auto later = options();
  later.kept = Kept{.step = 4, .epoch = 1};
  const RankRecorder recorder(library_, later);
  const Table steps = read("steps");
  EXPECT_EQ(steps.column("loss"), std::vector<double>{0.5});
  EXPECT_TRUE(std::isnan(steps.column("ended_at_s").at(0)));
  EXPECT_EQ(read("traffic").rows, 0U);
}

TEST_F(RankRecorderTest, ATableThatCannotBeReadIsAllThatADamagedFileLoses) {
  {
    RankRecorder recorder(library_, options());
    recorder.step({.step = 1, .epoch = 1});
    recorder.epoch({.epoch = 1, .samples = 10});
    recorder.event("checkpoint", "step 1");
    recorder.samples(1, 7);
  }
  {
    const auto lock = library_.lock();
    const h5::File file = h5::open_file(options().path, h5::Access::write);
    const h5::Dataset steps = h5::open_dataset(file.id(), "steps");
    h5::set_rows(steps, std::uint64_t{1} << 40U);
  }
  auto later = options();
  later.kept = Kept{.step = 1, .epoch = 1};
  RankRecorder recorder(library_, later);
  EXPECT_NE(recorder.lost().find("steps (says that it has more rows"), std::string::npos) << recorder.lost();
  EXPECT_NE(recorder.lost().find(later.path), std::string::npos) << recorder.lost();
  recorder.close();
  EXPECT_EQ(read("steps").rows, 0U);
  EXPECT_EQ(read("epochs").column("samples"), std::vector<double>{10});
  EXPECT_EQ(read("samples").column("hash"), std::vector<double>{7});
  EXPECT_EQ(read("events").texts.at("kind"), (std::vector<std::string>{"checkpoint", "records_lost"}));
  EXPECT_TRUE(std::filesystem::exists(later.path + ".damaged"));
}

TEST_F(RankRecorderTest, AFileThatCannotBeOpenedIsSetAsideAndNamed) {
  std::ofstream(options().path) << "no HDF5 file, though it has the name of one and some length";
  auto later = options();
  later.kept = Kept{.step = 1, .epoch = 1};
  const RankRecorder recorder(library_, later);
  EXPECT_NE(recorder.lost().find("all tables ("), std::string::npos) << recorder.lost();
  EXPECT_EQ(read("steps").rows, 0U);
  EXPECT_EQ(std::filesystem::file_size(later.path + ".damaged"), 59U);
}

TEST_F(RankRecorderTest, ARankThatIsNewHasLostNothing) {
  auto later = options();
  later.kept = Kept{.step = 1, .epoch = 1};
  EXPECT_EQ(RankRecorder(library_, later).lost(), "");
}

TEST_F(RankRecorderTest, TheFileOfARankThatIsGoneStillSaysWhoseItWas) {
  auto own = options();
  own.rank = 3;
  own.has_virtual_times = true;
  {
    RankRecorder recorder(library_, own);
    for (std::int64_t step = 1; step <= 4; ++step) {
      recorder.step({.step = step, .epoch = step});
      recorder.virtual_time({.step = step, .epoch = step, .virtual_time_s = 0.5});
    }
  }
  {
    const auto lock = library_.lock();
    const h5::File file = h5::open_file(own.path, h5::Access::write);
    h5::write_attribute(file.id(), "pid", std::int64_t{12345});
    h5::write_attribute(file.id(), "hostname", "node-of-old");
  }
  EXPECT_EQ(RankRecorder::trim(library_, own.path, own.rank, Kept{.step = 2, .epoch = 1}), "");
  EXPECT_EQ(read("steps").column("step"), (std::vector<double>{1, 2}));
  EXPECT_EQ(read("virtual_times").column("step"), (std::vector<double>{1, 2}));
  const auto lock = library_.lock();
  const h5::File file = h5::open_file(own.path, h5::Access::read);
  EXPECT_EQ(h5::read_int_attribute(file.id(), "pid"), 12345);
  EXPECT_EQ(h5::read_string_attribute(file.id(), "hostname"), "node-of-old");
  EXPECT_EQ(h5::read_int_attribute(file.id(), "rank"), 3);
}

TEST_F(RankRecorderTest, AnUnreadableFileOfARankThatIsGoneIsLeftAndNamed) {
  std::ofstream(options().path) << "no HDF5 file, though it has the name of one and some length";
  const auto lost = RankRecorder::trim(library_, options().path, 0, Kept{.step = 2, .epoch = 1});
  EXPECT_NE(lost.find(options().path + ": cannot be read"), std::string::npos) << lost;
  EXPECT_EQ(std::filesystem::file_size(options().path), 59U);
}

TEST_F(RankRecorderTest, RowsAreReadableAfterAFlushWhileRecordingGoesOn) {
  RankRecorder recorder(library_, options());
  recorder.step({.step = 1, .epoch = 1, .loss = 2.5, .weight = 64});
  recorder.flush();
  recorder.step({.step = 2, .epoch = 1, .loss = 2.25, .weight = 64});
  const Table steps = read("steps");
  ASSERT_EQ(steps.rows, 1U);
  EXPECT_EQ(steps.column("loss"), std::vector<double>{2.5});
  recorder.event("recovery", "rank 3 left");
  recorder.samples(1, ~std::uint64_t{0});
  recorder.epoch({.epoch = 1, .samples = 128});
  recorder.close();
  EXPECT_EQ(read("steps").rows, 2U);
  EXPECT_EQ(read("epochs").column("samples"), std::vector<double>{128});
  EXPECT_EQ(read("samples").column("hash"), std::vector<double>{-1});
  const Table events = read("events");
  EXPECT_EQ(events.texts.at("kind"), std::vector<std::string>{"recovery"});
  EXPECT_GE(events.column("time_s")[0], 0);
}

TEST_F(RankRecorderTest, OnlyEachNthStepIsKept) {
  RankRecorderOptions some = options();
  some.step_every = 10;
  RankRecorder recorder(library_, some);
  for (std::int64_t step = 1; step <= 35; ++step) recorder.step({.step = step});
  recorder.close();
  EXPECT_EQ(read("steps").column("step"), (std::vector<double>{10, 20, 30}));
}

TEST_F(RankRecorderTest, NoStepIsKeptWhenRecordingThemIsOff) {
  RankRecorderOptions none = options();
  none.step_every = 0;
  RankRecorder recorder(library_, none);
  recorder.step({.step = 1});
  recorder.close();
  EXPECT_EQ(read("steps").rows, 0U);
}

TEST_F(RankRecorderTest, AThreadOfItsOwnWritesWhatWasGathered) {
  RankRecorderOptions often = options();
  often.flush_interval_s = 0.001;
  RankRecorder recorder(library_, often);
  recorder.step({.step = 1});
  std::size_t rows = 0;
  while (rows == 0) {  // the test's time limit ends this if it never happens
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    rows = read("steps").rows;
  }
  EXPECT_EQ(rows, 1U);
}

TEST_F(RankRecorderTest, RowsAreGatheredWhileTheLibraryIsBusy) {
  RankRecorderOptions often = options();
  often.flush_interval_s = 0.001;
  RankRecorder recorder(library_, often);
  constexpr std::int64_t kSteps = 5000;
  {
    const auto lock = library_.lock();  // a checkpoint is being written
    for (std::int64_t step = 1; step <= kSteps; ++step) recorder.step({.step = step});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  recorder.close();
  const Table steps = read("steps");
  ASSERT_EQ(steps.rows, static_cast<std::size_t>(kSteps));
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    ASSERT_EQ(steps.column("step")[static_cast<std::size_t>(step - 1)], static_cast<double>(step));
  }
}

TEST_F(RankRecorderTest, RowsAfterCloseAreDropped) {
  RankRecorder recorder(library_, options());
  recorder.close();
  recorder.step({.step = 1});
  recorder.flush();
  recorder.close();
  EXPECT_EQ(read("steps").rows, 0U);
}

TEST_F(RankRecorderTest, APlaceThatCannotBeWrittenIsAUsageErrorThatNamesTheFile) {
  RankRecorderOptions nowhere = options();
  nowhere.path = folder_.file("none/rank-00000.h5");
  try {
    const RankRecorder recorder(library_, nowhere);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.subject(), nowhere.path);
    EXPECT_NE(error.advice().find("--output"), std::string::npos);
  }
}

TEST_F(RankRecorderTest, AFullDiskEndsTheRecordingAndNotTheRun) {
  RankRecorder recorder(library_, options());
  recorder.step({.step = 1});
  recorder.flush();
  EXPECT_EQ(recorder.problem(), "");
  testing::internal::CaptureStderr();
  {
    const test::FileSizeLimit full(std::filesystem::file_size(options().path));
    for (std::int64_t step = 2; step <= 10000; ++step) recorder.step({.step = step});
    recorder.flush();
    EXPECT_NE(recorder.problem().find(options().path), std::string::npos) << recorder.problem();
    recorder.step({.step = 10001});  // dropped
    recorder.close();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "HDF5 printed";
  EXPECT_EQ(read("steps").column("step").front(), 1) << "what was there before is still readable";
}

}  // namespace
}  // namespace dtrain::record
