#include "report/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>

#include "core/error.hpp"
#include "h5/attribute.hpp"
#include "h5/file.hpp"
#include "record/rank_recorder.hpp"
#include "record/results_writer.hpp"
#include "report/report_table.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::app {
namespace {

using record::PhaseTimes;
using record::RankRecorder;
using record::ResultsWriter;
using record::Status;
using testing::HasSubstr;
using testing::Not;

constexpr int kRanks = 4;
constexpr int kSlowRank = 2;

// A run of four ranks, one of which takes 13 s for what the others do in 10.
class ConstructedRun {
 public:
  ConstructedRun(h5::Library& library, const std::string& folder, double speed = 1)
      : folder_(folder), speed_(speed), results_(library, folder, info(folder)) {
    std::vector<record::TopologyRow> topology;
    for (int rank = 0; rank < kRanks; ++rank) {
      recorders_.push_back(std::make_unique<RankRecorder>(
          library, record::RankRecorderOptions{
                       .path = record::rank_path(folder, rank), .rank = rank, .flush_interval_s = 3600}));
      topology.push_back({.rank = rank,
                          .node = rank / 2,
                          .hostname = "node-" + std::to_string(rank / 2),
                          .device = "cpu",
                          .data_index = rank});
    }
    results_.topology(std::move(topology));
  }

  void steps(std::int64_t first, std::int64_t last) {
    for (int rank = 0; rank < kRanks; ++rank) {
      for (std::int64_t step = first; step <= last; ++step) {
        recorders_[rank]->step(
            {.step = step, .epoch = 1, .loss = 0.5, .weight = 16, .time_s = 1, .phases = phases(rank, 1)});
      }
      recorders_[rank]->flush();
    }
  }

  void epoch(std::int64_t epoch) {
    for (int rank = 0; rank < there; ++rank) {
      recorders_[rank]->epoch({.epoch = epoch,
                               .train_loss = 0.5,
                               .samples = samples[static_cast<std::size_t>(rank)],
                               .train_time_s = 14 / speed_,
                               .phases = phases(rank, 14 / speed_),
                               .bytes_sent = 1 << 20,
                               .bytes_received = 1 << 20,
                               .peak_memory_bytes = 300 << 20});
      recorders_[rank]->flush();
    }
    results_.epoch({.epoch = epoch,
                    .train_loss = 0.5,
                    .train_accuracy = 0.75,
                    .validation_loss = 0.25,
                    .validation_accuracy = 0.875,
                    .samples = 4000,
                    .train_time_s = 14 / speed_,
                    .validation_time_s = 1,
                    .samples_per_s = 4000 / 14.0 * speed_,
                    .model_flops_per_s = 2.5e9,
                    .learning_rate = 1.23456e-5});
  }

  std::array<std::int64_t, kRanks> samples = {1000, 1000, 1000, 1000};  ///< Of each rank in an epoch.

  int there = kRanks;  ///< Ranks that have not been lost.

  ResultsWriter& results() { return results_; }

  void event(int rank, const std::string& kind, const std::string& detail) {
    recorders_[rank]->event(kind, detail);
  }

  void finish(Status status) {
    results_.test(
        {.loss = 0.2, .accuracy = 0.9, .samples = 500, .time_s = 0.5, .checkpoint = "checkpoints/best"});
    for (const auto& recorder : recorders_) recorder->close();
    results_.finish(status);
  }

 private:
  static record::RunInfo info(const std::string& folder) {
    const std::string name = std::filesystem::path(folder).filename().string();
    return {.name = name,
            .model = "mlp",
            .dataset = "mnist",
            .strategy = "ddp",
            .mesh = "data=4,pipe=1,tensor=1",
            .world_size = kRanks,
            .start_time_utc = "2026-11-21T06:00:00.000Z",
            .dtrain_version = "0.1.0",
            .config = "epochs = 3\nname = \"" + name + "\"\nseed = " + std::to_string(name.size()) + "\n"};
  }

  // Of 14 s a rank waits what it does not work.
  static PhaseTimes phases(int rank, double wall_s) {
    const double part = wall_s / 14;
    const double own = rank == kSlowRank ? 13 : 10;
    return {.data_time_s = part,
            .forward_time_s = (own - 6) * part,
            .backward_time_s = 5 * part,
            .communication_time_s = 2 * part,
            .exposed_communication_time_s = (14 - own) * part};
  }

  std::string folder_;
  double speed_;
  ResultsWriter results_;
  std::vector<std::unique_ptr<RankRecorder>> recorders_;
};

class ReportTest : public testing::Test {
 protected:
  std::string text_of(ReportOptions options) {
    std::ostringstream out;
    report(library_, options, out);
    return out.str();
  }

  // As if the process that wrote it were gone.
  void forget_writers(const std::string& run) {
    const auto lock = library_.lock();
    for (int rank = 0; rank < kRanks; ++rank) {
      const h5::File file = h5::open_file(record::rank_path(run, rank), h5::Access::write);
      h5::write_attribute(file.id(), "pid", std::int64_t{1} << 30);
    }
  }

  static void expect_narrow(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(text_width(line), kReportWidth) << line;
  }

  h5::Library library_;
  test::ScratchFolder folder_;
  std::string run_ = folder_.file("run-a");
};

TEST_F(ReportTest, AFinishedRunNamesItsSlowRankAndWhatItCost) {
  ConstructedRun run(library_, run_);
  run.epoch(1);
  run.epoch(2);
  run.event(1, "checkpoint", "step 2");
  run.finish(Status::completed);
  const std::string text = text_of({.runs = {run_}});
  EXPECT_THAT(text, HasSubstr("status    completed"));
  EXPECT_THAT(text, HasSubstr("4 ranks on 2 nodes"));
  EXPECT_THAT(
      text,
      HasSubstr("rank 2 (node-1) is slower than the median by 30 %: 26.00 s of its own against 20.00 s"));
  EXPECT_THAT(text, HasSubstr("the others waited about 6.000 s for rank 2, 21.4 % of training"));
  EXPECT_THAT(text, Not(HasSubstr("rank 1 (")));
  EXPECT_THAT(text, HasSubstr("8,000 samples in 28.00 s of training: 286 samples/s, 2.5 GFLOP/s"));
  EXPECT_THAT(text, HasSubstr("test  loss 0.2, accuracy 0.9000, 500 samples"));
  EXPECT_THAT(text, HasSubstr("checkpoint: step 2"));
  EXPECT_THAT(text, HasSubstr("exposed communication"));
  EXPECT_THAT(text, HasSubstr("1.23e-05"));
  expect_narrow(text);
  EXPECT_EQ(text_of({.runs = {run_ + "/results.h5"}}), text) << "the file stands for its folder";
  EXPECT_EQ(text_of({.runs = {run_ + "/"}}), text);
}

TEST_F(ReportTest, MeasurementsDoNotPushOutWhatHappened) {
  ConstructedRun run(library_, run_);
  run.event(3, "lost_rank", "rank 1: is gone");
  run.event(0, "resumed", "from step-00000006");
  for (int epoch = 1; epoch <= 4; ++epoch) {
    run.epoch(epoch);
    for (int rank = 0; rank < kRanks; ++rank) {
      run.event(rank, "activation_memory", "epoch " + std::to_string(epoch) + ": at most 100 bytes");
      run.event(rank, "tensor_memory", "epoch " + std::to_string(epoch) + ": at most 300 bytes");
    }
  }
  run.finish(Status::completed);
  const std::string text = text_of({.runs = {run_}});
  const std::string events = text.substr(text.find("\nevents\n"));
  EXPECT_THAT(events,
              testing::ContainsRegex("^\nevents\n.*lost_rank: rank 1.*\n.*resumed: from step-00000006\n"
                                     "\nmeasured .*\n.*activation_memory: epoch 4.*\n.*"
                                     "tensor_memory: epoch 4: at most 300 bytes\n$"));
  expect_narrow(text);
}

TEST_F(ReportTest, CheckpointsDoNotPushOutWhatChangedTheRun) {
  ConstructedRun run(library_, run_);
  run.epoch(1);
  run.event(3, "lost_rank", "rank 1: is gone");
  for (int step = 1; step <= 20; ++step) run.event(0, "checkpoint", "step " + std::to_string(step));
  run.event(0, "resumed", "from step-00000006");
  run.event(0, "checkpoint", "step 21");
  run.finish(Status::completed);
  const std::string text = text_of({.runs = {run_}});
  const std::string events = text.substr(text.find("\nevents"));
  EXPECT_THAT(events, testing::StartsWith("\nevents (10 of 23: "));
  EXPECT_THAT(events, testing::ContainsRegex("lost_rank: .*\n.*checkpoint: step 14 *\n"));
  EXPECT_THAT(events, testing::ContainsRegex("step 20 *\n.*resumed: .*\n.*step 21 *\n$"));
  EXPECT_THAT(events, Not(HasSubstr("step 13\n")));
  expect_narrow(text);
}

TEST_F(ReportTest, ARankThatHasMoreSamplesIsNotSlow) {
  ConstructedRun run(library_, run_);
  run.samples[kSlowRank] = 2000;
  run.epoch(1);
  run.finish(Status::completed);
  EXPECT_THAT(text_of({.runs = {run_}}), HasSubstr("no rank is slower than the median"));
}

TEST_F(ReportTest, ARankThatWasLostIsNotComparedWithThoseThatWentOn) {
  ConstructedRun run(library_, run_);
  run.epoch(1);
  run.there = 2;
  run.epoch(2);
  run.finish(Status::completed);
  const std::string text = text_of({.runs = {run_}});
  EXPECT_THAT(text,
              HasSubstr("where time went (mean over the 2 of 4 ranks that were there in all epochs, 28"));
  EXPECT_THAT(text, HasSubstr("no rank is slower than the median"));  // the slow one was lost
}

TEST_F(ReportTest, ARankAloneIsComparedWithNone) {
  ConstructedRun run(library_, run_);
  run.epoch(1);
  run.there = 1;
  run.epoch(2);
  run.finish(Status::completed);
  EXPECT_THAT(text_of({.runs = {run_}}), Not(HasSubstr("slower than the median")));
}

TEST_F(ReportTest, ARunningRunIsReportedWhileItIsWritten) {
  ConstructedRun run(library_, run_);
  run.steps(1, 3);
  EXPECT_THAT(text_of({.runs = {run_}}), HasSubstr("no epoch has ended"));
  run.epoch(1);
  const std::string text = text_of({.runs = {run_}});
  EXPECT_THAT(text, HasSubstr("status    running"));
  EXPECT_THAT(text, HasSubstr("last step"));
  expect_narrow(text);
}

std::map<std::string, std::string> contents_of(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream stream(entry.path(), std::ios::binary);
    contents[entry.path().string()] = {std::istreambuf_iterator<char>(stream), {}};
  }
  return contents;
}

TEST_F(ReportTest, AReportLeavesAKilledRunAsItWas) {
  {
    ConstructedRun run(library_, run_);
    run.steps(1, 7);
  }
  forget_writers(run_);
  const auto before = contents_of(run_);
  EXPECT_THAT(text_of({.runs = {run_}}), HasSubstr("status    incomplete"));
  text_of({.runs = {run_}, .csv = true});
  EXPECT_TRUE(contents_of(run_) == before);
}

TEST_F(ReportTest, ARunThatStillWritesIsNotGathered) {
  ConstructedRun run(library_, run_);
  run.steps(1, 7);
  try {
    text_of({.runs = {run_}, .gather = true});
    ADD_FAILURE() << "it was gathered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("under way"));
  }
}

TEST_F(ReportTest, WhatAResultsFileSaysSendsATerminalNoControlCharacters) {
  {
    ConstructedRun run(library_, run_);
    run.epoch(1);
    run.finish(Status::completed);
  }
  {
    const auto lock = library_.lock();
    const h5::File file = h5::open_file(run_ + "/results.h5", h5::Access::write);
    h5::write_attribute(file.id(), "model", std::string("mlp\x1b[2J\x07"));
  }
  EXPECT_THAT(text_of({.runs = {run_}}), HasSubstr("mlp\\x1b[2J\\x07 on"));
}

TEST_F(ReportTest, AKilledRunIsReportedAsIncompleteAndItsRanksAreGatheredOnDemand) {
  {
    ConstructedRun run(library_, run_);
    run.steps(1, 7);
  }
  forget_writers(run_);
  const std::string first = text_of({.runs = {run_}});
  EXPECT_THAT(first, HasSubstr("status    incomplete"));
  EXPECT_THAT(first, HasSubstr("no epoch has ended"));
  EXPECT_THAT(first, HasSubstr("is slower than the median")) << "of steps, where there are no epochs";
  expect_narrow(first);
  EXPECT_EQ(text_of({.runs = {run_}, .gather = true}), first);
  std::filesystem::remove_all(run_ + "/ranks");
  EXPECT_EQ(text_of({.runs = {run_}}), first) << "results.h5 has all of it now";
}

TEST_F(ReportTest, AKilledRunInAFolderThatCannotBeWrittenIsReadInPlace) {
  {
    ConstructedRun run(library_, run_);
    run.epoch(1);
  }
  forget_writers(run_);
  std::filesystem::create_directory(run_ + "/results.h5.partial");  // nothing can be put aside there
  std::ofstream(run_ + "/results.h5.partial/in-the-way");
  EXPECT_THAT(text_of({.runs = {run_}}), HasSubstr("status    incomplete"));
  EXPECT_THAT(text_of({.runs = {run_}}), HasSubstr("is slower than the median"));
}

TEST_F(ReportTest, CsvHasTheColumnsOfTheFile) {
  ConstructedRun run(library_, run_);
  run.epoch(1);
  run.finish(Status::completed);
  std::istringstream lines(text_of({.runs = {run_}, .csv = true}));
  std::string header;
  std::string row;
  std::string more;
  std::getline(lines, header);
  std::getline(lines, row);
  EXPECT_EQ(header,
            "run,epoch,train_loss,train_accuracy,validation_loss,validation_accuracy,samples,train_time_s,"
            "validation_time_s,samples_per_s,model_flops_per_s,learning_rate");
  EXPECT_THAT(row, HasSubstr("run-a,1,0.5,0.75,0.25,0.875,4000,14,1,"));
  EXPECT_FALSE(std::getline(lines, more)) << more;
}

TEST_F(ReportTest, ClientsAreShownWithHowFarTheyAreApart) {
  ConstructedRun run(library_, run_);
  run.results().clients({.rows = {{.client = 0, .name = "", .samples = 5},
                                  {.client = 1, .name = "", .samples = 7},
                                  {.client = 2, .name = "", .samples = 9}},
                         .classes = {},
                         .owners = {}});
  run.results().round({.round = 1, .sampled = 3, .handed_in = 2, .samples = 12, .update_norm = 0.5});
  run.results().test_clients({{.client = 0, .samples = 4, .loss = 0.5, .accuracy = 0.5},
                              {.client = 1, .samples = 4, .loss = 0.5, .accuracy = 0.75},
                              {.client = 2, .samples = 4, .loss = 0.5, .accuracy = 1.0}});
  run.results().privacy({.epoch = 1, .step = 8, .releases = 8, .epsilon = 2.5, .delta = 1e-5});
  run.epoch(1);
  run.finish(Status::completed);
  const std::string text = text_of({.runs = {run_}});
  EXPECT_THAT(text,
              HasSubstr("clients: accuracy at worst 0.5000, median 0.7500, at best 1.0000, mean 0.7500, "
                        "deviation 0.2041"));
  EXPECT_THAT(text, HasSubstr("rounds 1: 3 clients were sampled, and 2 handed in; there are 3"));
  EXPECT_THAT(text, HasSubstr("privacy: epsilon 2.5 at delta 1e-05 after step 8"));
  const std::string compared = text_of({.runs = {run_}, .compare = true});
  EXPECT_THAT(compared, HasSubstr("test accuracy by owner or client"));
  EXPECT_THAT(compared, HasSubstr("0.2041"));
}

TEST_F(ReportTest, OfManyClientsTheReportHasWhatTheyComeToTogether) {
  ConstructedRun run(library_, run_);
  std::vector<record::ClientTestRow> rows;
  for (int client = 0; client < 100; ++client)
    rows.push_back({.client = client, .samples = 1, .accuracy = client < 50 ? 0.25 : 0.75});
  run.results().test_clients(std::move(rows));
  run.epoch(1);
  run.finish(Status::completed);
  const std::string text = text_of({.runs = {run_}});
  EXPECT_THAT(text,
              HasSubstr("clients: accuracy at worst 0.2500, median 0.5000, at best 0.7500, mean 0.5000"));
  EXPECT_THAT(text, Not(HasSubstr("client  ")));
}

TEST_F(ReportTest, RunsAreComparedWithTheFirst) {
  for (const auto& [name, speed] : {std::pair{"one", 1.0}, std::pair{"two, faster", 2.0}}) {
    ConstructedRun run(library_, folder_.file(name), speed);
    run.epoch(1);
    run.finish(Status::completed);
  }
  const std::vector<std::string> runs = {folder_.file("one"), folder_.file("two, faster")};
  const std::string text = text_of({.runs = runs, .compare = true});
  EXPECT_THAT(text, testing::ContainsRegex("one +completed +4 +1 +286 +1.00"));
  EXPECT_THAT(text, testing::ContainsRegex("two, faster +completed +4 +1 +571 +2.00"));
  EXPECT_THAT(text, HasSubstr("validation accuracy by epoch"));
  EXPECT_THAT(text,
              testing::ContainsRegex("\noptions that differ\n +option +one +two, faster\n +seed +3 +11\n$"));
  expect_narrow(text);
  const std::string csv = text_of({.runs = runs, .compare = true, .csv = true});
  EXPECT_THAT(
      csv, HasSubstr("\n\"two, faster\",completed,mlp,mnist,ddp,\"data=4,pipe=1,tensor=1\",4,2,1,4000,7,"));
}

/// One that was begun from another run's checkpoint has no row of the epochs before.
TEST_F(ReportTest, EpochsAreComparedByTheirNumber) {
  const auto run_of = [&](const char* name, std::vector<std::int64_t> epochs) {
    ConstructedRun run(library_, folder_.file(name));
    for (const std::int64_t epoch : epochs) run.epoch(epoch);
    run.finish(Status::completed);
    return folder_.file(name);
  };
  const std::string text =
      text_of({.runs = {run_of("base", {1, 2}), run_of("further", {3})}, .compare = true});
  EXPECT_THAT(text,
              testing::ContainsRegex("\n +epoch +base +further\n +1 +0.8750\n +2 +0.8750\n +3 +0.8750\n"));
}

TEST_F(ReportTest, FollowingPrintsEachEpochOnceAndEndsWithTheRun) {
  ConstructedRun run(library_, run_);
  run.epoch(1);
  std::ostringstream out;
  int looks = 0;
  const auto goes_on_meanwhile = [&] {
    if (++looks <= 2) {
      run.epoch(1 + looks);
    } else {
      run.finish(Status::completed);
    }
    return false;
  };
  report(library_, {.runs = {run_}, .follow = true, .follow_interval_s = 0.001}, out, goes_on_meanwhile);
  const std::string text = out.str();
  const std::string followed = text.substr(0, text.find("status    completed"));
  std::size_t rows = 0;
  for (std::size_t at = followed.find("4,000"); at != std::string::npos; at = followed.find("4,000", at + 1))
    ++rows;
  EXPECT_EQ(rows, 3U) << text;
  EXPECT_EQ(followed.find("train loss"), followed.rfind("train loss")) << "headings once";
  EXPECT_THAT(text, HasSubstr("status    completed"));
  expect_narrow(text);
}

TEST_F(ReportTest, FollowingWaitsForTheRunAndSaysItsStepsBetweenEpochs) {
  std::unique_ptr<ConstructedRun> run;
  std::ostringstream out;
  int looks = 0;
  const auto goes_on_meanwhile = [&] {
    ++looks;
    if (looks == 3) {
      run = std::make_unique<ConstructedRun>(library_, run_);
      run->steps(1, 40);
    }
    if (looks == 4) run->steps(41, 1041);
    if (looks == 6) run->epoch(1);
    if (looks == 7) run->finish(Status::completed);
    return false;
  };
  report(library_, {.runs = {run_}, .follow = true, .follow_interval_s = 0.001, .step_interval_s = 0}, out,
         goes_on_meanwhile);
  const std::string text = out.str();
  EXPECT_TRUE(text.starts_with("waiting for " + run_ + " to begin\n")) << text;
  EXPECT_THAT(text, HasSubstr("  step 40 of epoch 1: loss 0.5, 1.000 s\n  step 1,041 of epoch 1: loss 0.5"));
  EXPECT_EQ(text.find("step 1,041 of"), text.rfind("step 1,041 of")) << "a step is said once";
  EXPECT_THAT(text, HasSubstr("status    completed"));
  expect_narrow(text);
}

TEST_F(ReportTest, FollowingARunThatHasEndedReportsItOnce) {
  ConstructedRun run(library_, run_);
  run.epoch(1);
  run.finish(Status::completed);
  EXPECT_EQ(text_of({.runs = {run_}, .follow = true}), text_of({.runs = {run_}}));
}

TEST_F(ReportTest, BigNumbersStillFit) {
  ResultsWriter results(library_, run_,
                        {.name = std::string(300, 'n'),
                         .model = "gpt",
                         .dataset = std::string(200, 'd'),
                         .strategy = "ddp",
                         .mesh = "data=1024,pipe=1,tensor=1",
                         .world_size = 1024});
  results.epoch({.epoch = 1000,
                 .train_loss = 1.23456e-10,
                 .train_accuracy = 1,
                 .validation_loss = 123456.7,
                 .validation_accuracy = 1,
                 .samples = 999'999'999,
                 .train_time_s = 123456.7,
                 .samples_per_s = 9'999'999,
                 .model_flops_per_s = 9.87e17,
                 .learning_rate = 1.234e-05});
  results.topology(
      {{.rank = 12345, .hostname = "a-long-name-of-a-node.cluster.example.org", .device = "cuda:7"}});
  {
    RankRecorder recorder(library_, {.path = record::rank_path(run_, 12345), .rank = 12345});
    recorder.step({.step = 99'999'999, .time_s = 1});
    recorder.epoch({.epoch = 1000,
                    .samples = 9'999'999,
                    .train_time_s = 99'999,
                    .bytes_sent = std::int64_t{987} << 40,
                    .bytes_received = std::int64_t{987} << 40,
                    .peak_memory_bytes = std::int64_t{999} << 30});
    recorder.flush();
    expect_narrow(text_of({.runs = {run_}}));  // while it lasts
  }
  results.finish(Status::completed);
  expect_narrow(text_of({.runs = {run_}}));
  EXPECT_THAT(text_of({.runs = {run_, run_}, .csv = true}), HasSubstr("\n" + run_ + ",1000,"))
      << "two runs of one name are told apart by their folders";
  const std::string alike = text_of({.runs = {run_, run_, run_, run_, run_, run_, run_}, .compare = true});
  expect_narrow(alike);
  EXPECT_THAT(alike, HasSubstr("\nno option differs\n"));
}

TEST_F(ReportTest, AResultsFileOfAnotherVersionIsADataErrorWithARemedy) {
  { ConstructedRun run(library_, run_); }
  {
    const auto lock = library_.lock();
    h5::write_attribute(h5::open_file(record::results_path(run_), h5::Access::write).id(), "version", 2);
  }
  try {
    text_of({.runs = {run_}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_THAT(error.subject(), HasSubstr("results.h5"));
    EXPECT_THAT(error.what(), HasSubstr("version 2"));
    EXPECT_FALSE(error.advice().empty());
  }
}

TEST_F(ReportTest, WhatIsNoRunIsAUsageError) {
  std::filesystem::create_directory(folder_.file("empty"));
  for (const std::string& run : {folder_.file("none"), folder_.file("empty")}) {
    try {
      text_of({.runs = {run}});
      FAIL() << "no error for " << run;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_EQ(error.subject(), run);
      EXPECT_FALSE(error.advice().empty());
    }
  }
  EXPECT_THROW(text_of({.runs = {}}), Error);
  EXPECT_THROW(text_of({.runs = {folder_.path()}, .csv = true, .follow = true}), Error);
}

TEST(ReportTableTest, NumbersReadWell) {
  EXPECT_EQ(grouped_text(1234567), "1,234,567");
  EXPECT_EQ(grouped_text(-1234), "-1,234");
  EXPECT_EQ(grouped_text(999), "999");
  EXPECT_EQ(si_text(58.44e9), "58.4 G");
  EXPECT_EQ(si_text(999.6), "1 k");
  EXPECT_EQ(bytes_text(3 << 20), "3.0 MiB");
  EXPECT_EQ(bytes_text(12), "12 B");
  EXPECT_EQ(bytes_text(326.4 * (1 << 20)), "326 MiB");
  EXPECT_EQ(bytes_text(1023 << 10), "1.0 MiB");
  EXPECT_EQ(percent_text(0.2604), "26.0 %");
  EXPECT_EQ(fixed_text(record::kNoValue, 2), "-");
  EXPECT_EQ(clipped("größer", 6), "größer");
  EXPECT_EQ(clipped("größeres", 6), "grö...");
}

}  // namespace
}  // namespace dtrain::app
