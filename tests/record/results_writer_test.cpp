#include "record/results_writer.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/error.hpp"
#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/file_size_limit.hpp"
#include "record/rank_recorder.hpp"
#include "record/run_reader.hpp"
#include "record/table_file.hpp"
#include "support/scratch_folder.hpp"

namespace {

// What was synced, a folder with the state in it at that time. In place of the C library's function.
std::vector<std::string>& synced_files() {
  static std::vector<std::string> paths;
  return paths;
}

}  // namespace

extern "C" int fsync(int fd) {
  std::string path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string();
  if (const auto state = dtrain::record::read_state(path)) path += " " + std::string(status_name(*state));
  synced_files().push_back(path);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace dtrain::record {
namespace {

namespace fs = std::filesystem;

class ResultsWriterTest : public testing::Test {
 protected:
  RunInfo info() const {
    return {.name = "mlp-synthetic",
            .model = "mlp",
            .dataset = "synthetic",
            .strategy = "ddp",
            .mesh = "data=2,pipe=1,tensor=1",
            .world_size = 2,
            .start_time_utc = "2026-11-21T06:00:00.000Z",
            .dtrain_version = "0.1.0",
            .command_line = "dtrain --epochs 2",
            .config = "epochs = 2\n",
            .tf32 = "off"};
  }

  std::unique_ptr<RankRecorder> recorder(int rank) {
    return std::make_unique<RankRecorder>(
        library_, RankRecorderOptions{.path = rank_path(run_, rank), .rank = rank, .flush_interval_s = 3600});
  }

  RunRecord read() { return read_run(library_, run_, Detail::steps); }

  h5::Library library_;
  test::ScratchFolder folder_;
  std::string run_ = folder_.file("runs/mlp");
};

TEST_F(ResultsWriterTest, ARunIsReadableFromItsFirstMomentToItsEnd) {
  ResultsWriter results(library_, run_, info(), {{"validation_loss_free_running", "1"}});
  EXPECT_EQ(read_state(run_), Status::running);
  EXPECT_EQ(read().status, Status::running) << "nothing was recorded yet";

  auto first = recorder(0);
  auto second = recorder(1);
  second->step({.step = 1, .epoch = 1, .loss = 0.5});
  second->flush();
  results.topology({{.rank = 0, .hostname = "n0"}, {.rank = 1, .hostname = "n0", .data_index = 1}});
  results.epoch({.epoch = 1, .train_loss = 0.75, .samples = 100}, std::vector<double>{0.125});
  RunRecord running = read();
  EXPECT_TRUE(running.alive);
  EXPECT_EQ(running.status, Status::running);
  EXPECT_EQ(running.epochs.column("validation_loss_free_running"), std::vector<double>{0.125});
  ASSERT_EQ(running.ranks.size(), 2U);
  EXPECT_EQ(running.ranks[1].steps.rows, 1U);
  EXPECT_EQ(running.topology.texts.at("hostname"), (std::vector<std::string>{"n0", "n0"}));

  results.test({.loss = 0.25, .accuracy = 0.5, .samples = 10, .checkpoint = "checkpoints/best"},
               std::vector<double>{0.5});
  first->close();
  second->close();
  results.finish(Status::completed);
  EXPECT_EQ(read_state(run_), Status::completed);
  fs::remove_all(run_ + "/ranks");  // everything is in results.h5 now
  const RunRecord done = read();
  EXPECT_EQ(done.status, Status::completed);
  EXPECT_TRUE(done.merged);
  ASSERT_EQ(done.ranks.size(), 2U);
  EXPECT_EQ(done.ranks[1].steps.column("loss"), std::vector<double>{0.5});
  EXPECT_EQ(done.test.texts.at("split"), std::vector<std::string>{"test"});
  EXPECT_EQ(done.attributes.at("config"), "epochs = 2\n");
  EXPECT_EQ(done.attributes.at("tf32"), "off");
  EXPECT_FALSE(done.attributes.contains("emulated")) << "nothing was";
  EXPECT_FALSE(done.attributes.at("end_time_utc").empty());
}

TEST_F(ResultsWriterTest, ARunThatGoesOnKeepsItsEpochs) {
  const std::vector<ExtraColumn> extra = {{"validation_r2", "1"}};
  {
    ResultsWriter results(library_, run_, info(), extra);
    for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
      results.epoch({.epoch = epoch, .samples = 10 * epoch},
                    std::vector<double>{0.5 * static_cast<double>(epoch)});
    }
    results.test({.loss = 1}, std::vector<double>{1});
  }
  ResultsWriter results(library_, run_, info(), extra, Kept{.step = 20, .epoch = 2});
  results.epoch({.epoch = 3, .samples = 99}, std::vector<double>{7});
  const RunRecord run = read();
  EXPECT_EQ(run.epochs.column("samples"), (std::vector<double>{10, 20, 99}));
  EXPECT_EQ(run.epochs.column("validation_r2"), (std::vector<double>{0.5, 1, 7}));
  EXPECT_EQ(run.test.rows, 0U);
  EXPECT_EQ(start_time_of(library_, results_path(run_)), info().start_time_utc);
}

TEST_F(ResultsWriterTest, ARunThatGoesOnKeepsWhereItsRanksWereUntilItSaysMore) {
  {
    ResultsWriter results(library_, run_, info());
    results.topology({{.rank = 0, .hostname = "n0"}, {.rank = 1, .hostname = "n1"}});
    EXPECT_EQ(read().topology.rows, 2U) << "at once: the first epoch may take days";
  }
  const ResultsWriter results(library_, run_, info(), {}, Kept{.step = 20, .epoch = 2});
  EXPECT_EQ(read().topology.texts.at("hostname"), (std::vector<std::string>{"n0", "n1"}));
}

TEST_F(ResultsWriterTest, ARunThatGoesOnSetsADamagedFileAsideAndSaysSo) {
  {
    ResultsWriter results(library_, run_, info());
    results.epoch({.epoch = 1, .samples = 10});
    EXPECT_TRUE(results.lost().empty());
  }
  fs::resize_file(results_path(run_), 300);
  ResultsWriter results(library_, run_, info(), {}, Kept{.step = 10, .epoch = 1});
  EXPECT_NE(results.lost().find("results.h5.damaged"), std::string::npos) << results.lost();
  results.epoch({.epoch = 2, .samples = 99});
  EXPECT_EQ(read().epochs.column("samples"), (std::vector<double>{99}));
  EXPECT_EQ(fs::file_size(results_path(run_) + ".damaged"), 300U);
}

TEST_F(ResultsWriterTest, NothingIsLeftAside) {
  ResultsWriter results(library_, run_, info());
  results.epoch({.epoch = 1});
  results.finish(Status::completed);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run_)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"ranks", "results.h5", "state"}));
}

TEST_F(ResultsWriterTest, AFullDiskLeavesTheFileAsItWasAndTheNextChangeTriesAgain) {
  ResultsWriter results(library_, run_, info());
  results.epoch({.epoch = 1});
  testing::internal::CaptureStderr();
  for (const rlim_t bytes : {0, 500, 2000, 6000}) {
    const test::FileSizeLimit full(bytes);
    results.epoch({.epoch = 2});
    EXPECT_NE(results.problem().find("results.h5"), std::string::npos) << results.problem();
    EXPECT_THROW(results.finish(Status::completed), Error);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "HDF5 printed";
  EXPECT_EQ(read().epochs.rows, 1U);
  EXPECT_EQ(read_state(run_), Status::running);
  results.epoch({.epoch = 3});
  EXPECT_EQ(results.problem(), "");
  EXPECT_EQ(read().epochs.rows, 6U);
}

TEST_F(ResultsWriterTest, AnEpochWithoutTheModelsOwnColumnsIsRefused) {
  ResultsWriter results(library_, run_, info(), {{"extra", "1"}});
  EXPECT_THROW(results.epoch({.epoch = 1}), Error);
}

TEST_F(ResultsWriterTest, AKilledRunIsIncompleteAndCanBeFinished) {
  {
    ResultsWriter results(library_, run_, info());
    auto first = recorder(0);
    first->step({.step = 1, .loss = 0.5});
    first->flush();
  }
  // The process that wrote the file is gone, and so is a later one of that number.
  {
    const auto lock = library_.lock();
    const h5::File file = h5::open_file(rank_path(run_, 0), h5::Access::write);
    h5::write_attribute(file.id(), "pid", std::int64_t{1} << 30);
  }
  const RunRecord killed = read();
  EXPECT_EQ(killed.status, Status::incomplete);
  EXPECT_FALSE(killed.merged);
  ASSERT_EQ(killed.ranks.size(), 1U) << "the other rank never began";
  finish_interrupted(library_, run_, Status::incomplete);
  fs::remove_all(run_ + "/ranks");
  const RunRecord finished = read();
  EXPECT_TRUE(finished.merged);
  EXPECT_EQ(finished.status, Status::incomplete);
  ASSERT_EQ(finished.ranks.size(), 1U);
  EXPECT_EQ(finished.ranks[0].steps.rows, 1U);
  EXPECT_EQ(read_state(run_), Status::running) << "only the run itself writes its state";
}

TEST_F(ResultsWriterTest, ZerosOfABurstThatWasCutAreLeftOut) {
  ResultsWriter results(library_, run_, info());
  auto first = recorder(0);
  for (const std::int64_t step : {1, 2, 0, 0}) first->step({.step = step});
  first->close();
  const RunRecord run = read();
  EXPECT_EQ(run.ranks.at(0).steps.rows, 2U);
  EXPECT_EQ(run.ranks.at(0).steps.column("step"), (std::vector<double>{1, 2}));
  EXPECT_EQ(run.ranks.at(0).steps.column("loss").size(), 2U);
}

TEST_F(ResultsWriterTest, ABrokenRankFileIsLeftOutAndNamed) {
  ResultsWriter results(library_, run_, info());
  auto first = recorder(0);
  first->close();
  std::ofstream(rank_path(run_, 1)) << "no HDF5 file, though it has the name of one and some length";
  results.finish(Status::completed);
  const RunRecord done = read();
  EXPECT_EQ(done.ranks.size(), 1U);
  EXPECT_NE(done.attributes.at("unreadable_ranks").find("rank 1"), std::string::npos);
}

TEST_F(ResultsWriterTest, SoManyBrokenRankFilesThatNamesFillAnAttributeAreCounted) {
  constexpr int kBroken = 700;
  ResultsWriter results(library_, run_, info());
  for (int rank = 0; rank < kBroken; ++rank) std::ofstream(rank_path(run_, rank)) << std::string(100, 'x');
  results.finish(Status::completed);
  const auto names = read().attributes.at("unreadable_ranks");
  EXPECT_NE(names.find("rank 0: "), std::string::npos) << names;
  const auto named = static_cast<int>(std::count(names.begin(), names.end(), ';'));
  EXPECT_NE(names.find("and " + std::to_string(kBroken - named) + " other ranks"), std::string::npos)
      << names << ", " << named;
}

TEST_F(ResultsWriterTest, TheDiskHasTheResultsBeforeTheStateSaysThatTheyAreComplete) {
  ResultsWriter results(library_, run_, info());
  results.epoch({.epoch = 1});
  synced_files().clear();
  results.finish(Status::completed);
  const std::string run = std::filesystem::canonical(run_).string();
  const std::string aside = results_path(run) + ".partial";
  EXPECT_EQ(synced_files(),
            (std::vector<std::string>{aside, run + " running", run + "/state", run + " completed"}));
}

TEST_F(ResultsWriterTest, AResultsFileOfAnotherVersionIsRefusedWithARemedy) {
  { ResultsWriter results(library_, run_, info()); }
  {
    const auto lock = library_.lock();
    const h5::File file = h5::open_file(results_path(run_), h5::Access::write);
    h5::write_attribute(file.id(), "version", 999);
  }
  try {
    read();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(error.what()).find("version 999"), std::string::npos) << error.what();
    EXPECT_FALSE(error.advice().empty());
  }
}

TEST_F(ResultsWriterTest, AFolderWithoutResultsIsNoRun) {
  try {
    read();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.subject(), run_);
  }
}

TEST_F(ResultsWriterTest, ADamagedResultsFileIsADataError) {
  { ResultsWriter results(library_, run_, info()); }
  fs::resize_file(results_path(run_), 300);
  try {
    read();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
  }
}

TEST_F(ResultsWriterTest, AnOutputFolderThatCannotBeMadeIsAUsageErrorThatNamesIt) {
  std::ofstream(folder_.file("runs")) << "a file where a folder is wanted";
  try {
    const ResultsWriter results(library_, run_, info());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.subject(), run_);
    EXPECT_NE(error.advice().find("--output"), std::string::npos);
  }
}

TEST_F(ResultsWriterTest, AReadOnlyOutputFolderIsAUsageError) {
  fs::create_directories(run_ + "/ranks");
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::permissions(run_, fs::perms(0555));
  constexpr uid_t kNobody = 65534;
  const bool root = ::geteuid() == 0;  // who may write everywhere, so that another is to try
  ASSERT_EQ(root ? ::seteuid(kNobody) : 0, 0);
  std::string named;
  ExitCode code = ExitCode::success;
  try {
    create_run_folder(run_);
  } catch (const Error& error) {
    named = error.subject();
    code = error.code();
  }
  ASSERT_EQ(root ? ::seteuid(0) : 0, 0);
  fs::permissions(run_, fs::perms(0755));
  EXPECT_EQ(named, run_);
  EXPECT_EQ(code, ExitCode::usage);
}

TEST(RunFolderTest, StateIsOneWordOnOneLine) {
  const test::ScratchFolder folder;
  EXPECT_EQ(read_state(folder.path()), std::nullopt);
  for (const Status status : {Status::running, Status::completed, Status::preempted, Status::failed}) {
    write_state(folder.path(), status);
    EXPECT_EQ(read_state(folder.path()), status);
    std::ifstream in(folder.file("state"));
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    EXPECT_EQ(text, std::string(status_name(status)) + "\n");
  }
}

TEST_F(ResultsWriterTest, ValidationsAndTestHaveTheModelsColumnsToo) {
  ResultsWriter results(library_, run_, info(), {{"validation_f1", "1"}});
  results.validation({.step = 5, .epoch = 1, .loss = 0.5, .samples = 10}, std::vector<double>{0.25});
  results.validation({.step = 5, .epoch = 1, .loss = 0.75, .samples = 10}, std::vector<double>{0.125});
  EXPECT_THROW(results.validation({.step = 6}), Error) << "no value for the model's column";
  results.test({.loss = 0.25, .samples = 10}, std::vector<double>{0.5},
               {.classes = {"cat", "dog"}, .counts = {3, 1, 0, 6}});
  const auto lock = library_.lock();
  const auto file = h5::open_file(results_path(run_), h5::Access::read);
  const auto validations = read_table(file.id(), "validations");
  EXPECT_EQ(validations.column("loss"), std::vector<double>{0.75}) << "what is done again replaces";
  EXPECT_EQ(validations.column("f1"), std::vector<double>{0.125});
  EXPECT_EQ(read_table(file.id(), "test").column("f1"), std::vector<double>{0.5});
  EXPECT_EQ(h5::read_all<std::int64_t>(h5::open_dataset(file.id(), "test_confusion")),
            (std::vector<std::int64_t>{3, 1, 0, 6}));
  EXPECT_EQ(h5::read_strings(h5::open_dataset(file.id(), "test_classes")),
            (std::vector<std::string>{"cat", "dog"}));
}

TEST_F(ResultsWriterTest, ARunThatGoesOnKeepsWhatCountsAndTakesColumnsThatWereNotThere) {
  {
    ResultsWriter results(library_, run_, info());
    results.validation({.step = 5, .epoch = 1, .loss = 0.5});
    results.validation({.step = 10, .epoch = 1, .loss = 0.25});
    results.epoch({.epoch = 1, .train_loss = 0.75});
    results.validation({.step = 15, .epoch = 2, .loss = 0.125});
    results.epoch({.epoch = 2, .train_loss = 0.5});
  }
  const ResultsWriter results(library_, run_, info(), {{"validation_f1", "1"}}, Kept{.step = 12, .epoch = 1});
  const auto lock = library_.lock();
  const auto file = h5::open_file(results_path(run_), h5::Access::read);
  EXPECT_EQ(read_table(file.id(), "validations").column("step"), (std::vector<double>{5, 10}));
  const auto epochs = read_table(file.id(), "epochs");
  EXPECT_EQ(epochs.column("train_loss"), std::vector<double>{0.75});
  EXPECT_TRUE(std::isnan(epochs.column("validation_f1").at(0)));
}

}  // namespace
}  // namespace dtrain::record
