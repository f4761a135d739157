#include "record/trace_writer.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "record/run_folder.hpp"
#include "record/step_clock.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::record {
namespace {

nlohmann::json trace_of(const std::string& folder) {
  std::ifstream in(trace_path(folder));
  return nlohmann::json::parse(in).at("traceEvents");
}

TEST(TraceWriterTest, RanksAreJoinedToOneTraceWithAProcessForEach) {
  const test::ScratchFolder folder;
  create_run_folder(folder.path());
  for (const int rank : {0, 1}) {
    TraceWriter trace(trace_part_path(folder.path(), rank), rank, 1000);
    trace.span(Phase::forward, "forward", 2000, 4500);
    trace.span(Phase::communication, "all_reduce", 3000, 9000);
    trace.close();
    trace.span(Phase::forward, "late", 0, 1);  // dropped
  }
  merge_traces(folder.path());
  std::map<int, int> spans_of_rank;
  std::set<std::string> names;
  for (const nlohmann::json& event : trace_of(folder.path())) {
    if (event.at("ph") == "M") {
      names.insert(event.at("args").at("name"));
      continue;
    }
    EXPECT_EQ(event.at("ph"), "X");
    ++spans_of_rank[event.at("pid")];
    const bool forward = event.at("name") == "forward";
    EXPECT_EQ(event.at("tid"), forward ? 0 : 1);
    EXPECT_DOUBLE_EQ(event.at("ts"), forward ? 1.0 : 2.0) << "microseconds since the common zero";
    EXPECT_DOUBLE_EQ(event.at("dur"), forward ? 2.5 : 6.0);
  }
  EXPECT_EQ(spans_of_rank, (std::map<int, int>{{0, 2}, {1, 2}}));
  EXPECT_TRUE(names.contains("rank 1") && names.contains("compute") && names.contains("communication"));
  EXPECT_FALSE(std::filesystem::exists(trace_part_path(folder.path(), 0))) << "parts are gone once joined";
}

TEST(TraceWriterTest, ALineThatWasCutByAKillIsLeftOut) {
  const test::ScratchFolder folder;
  create_run_folder(folder.path());
  std::ofstream(trace_part_path(folder.path(), 0)) << R"({"name":"a","ph":"X"})"
                                                   << "\n"
                                                   << R"({"name":"b","ph")";
  merge_traces(folder.path());
  const nlohmann::json events = trace_of(folder.path());
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].at("name"), "a");
}

TEST(TraceWriterTest, TheClockForwardsItsSpansNested) {
  const test::ScratchFolder folder;
  create_run_folder(folder.path());
  {
    TraceWriter trace(trace_part_path(folder.path(), 0), 0, steady_ns());
    StepClock clock;
    clock.trace_to(&trace);
    {
      const ScopedSpan backward(clock, Phase::backward, "outer");
      const ScopedSpan wait(clock, Phase::exposed_communication, "inner");
    }
    for (int i = 0; i < 40000; ++i)
      const ScopedSpan many(clock, Phase::data, "many");  // more than is buffered
  }
  merge_traces(folder.path());
  std::map<std::string, nlohmann::json> last;
  std::map<std::string, int> count;
  for (const nlohmann::json& event : trace_of(folder.path())) {
    last[event.at("name")] = event;
    ++count[event.at("name")];
  }
  EXPECT_EQ(count["many"], 40000);
  const double outer_start = last["outer"].at("ts");
  const double outer_end = outer_start + static_cast<double>(last["outer"].at("dur"));
  const double inner_start = last["inner"].at("ts");
  EXPECT_GE(inner_start, outer_start);
  EXPECT_LE(inner_start + static_cast<double>(last["inner"].at("dur")), outer_end + 1e-3);
}

/// [rank]: the steps of its spans, in their order; 0: none.
std::map<int, std::vector<int>> steps_by_rank(const std::string& folder) {
  std::map<int, std::vector<int>> steps;
  for (const nlohmann::json& event : trace_of(folder)) {
    if (event.at("ph") != "X") continue;
    steps[event.at("pid")].push_back(event.contains("args") ? event.at("args").at("step").get<int>() : 0);
  }
  return steps;
}

void write_steps(TraceWriter& trace, std::int64_t first, std::int64_t last) {
  for (std::int64_t step = first; step <= last; ++step) {
    trace.begin_step(step);
    trace.span(Phase::forward, "forward", step * 10, step * 10 + 5);
  }
}

TEST(TraceWriterTest, SpansHaveTheirStepAndThoseOutsideTheWindowAreLeftOut) {
  const test::ScratchFolder folder;
  create_run_folder(folder.path());
  {
    TraceWriter whole(trace_part_path(folder.path(), 0), 0, 0);
    TraceWriter window(trace_part_path(folder.path(), 1), 1, 0, TraceBegin::anew, {.first = 2, .last = 3});
    write_steps(whole, 0, 4);
    write_steps(window, 0, 4);
  }
  merge_traces(folder.path());
  EXPECT_EQ(steps_by_rank(folder.path()),
            (std::map<int, std::vector<int>>{{0, {0, 1, 2, 3, 4}}, {1, {2, 3}}}));
}

/// As after a rank was lost, and after a kill that has cut a line.
TEST(TraceWriterTest, WhatAnEarlierPartOfTheRunHasLeftStays) {
  const test::ScratchFolder folder;
  create_run_folder(folder.path());
  const std::string part = trace_part_path(folder.path(), 0);
  {
    TraceWriter first(part, 0, 0);
    write_steps(first, 1, 2);
  }
  std::ofstream(part, std::ios::app) << R"({"name":"forward","ca)";
  {
    TraceWriter second(part, 0, 0, TraceBegin::continued);
    write_steps(second, 2, 3);
  }
  merge_traces(folder.path());
  EXPECT_EQ(steps_by_rank(folder.path()), (std::map<int, std::vector<int>>{{0, {1, 2, 2, 3}}}));
  {  // another process resumes the run
    TraceWriter third(part, 0, 0, TraceBegin::continued);
    write_steps(third, 4, 4);
  }
  merge_traces(folder.path());
  EXPECT_EQ(steps_by_rank(folder.path()), (std::map<int, std::vector<int>>{{0, {1, 2, 2, 3, 4}}}));
}

TEST(TraceWriterTest, ARunThatBeginsAnewKeepsNothingOfThePartBefore) {
  const test::ScratchFolder folder;
  create_run_folder(folder.path());
  const std::string part = trace_part_path(folder.path(), 0);
  std::ofstream(part) << "{\"left\":\"by a run that was killed\"}\n";
  {
    TraceWriter trace(part, 0, 0);
    write_steps(trace, 1, 1);
  }
  merge_traces(folder.path());
  EXPECT_EQ(steps_by_rank(folder.path()), (std::map<int, std::vector<int>>{{0, {1}}}));
}

TEST(TraceWriterTest, AFolderThatIsMissingIsAUsageError) {
  const test::ScratchFolder folder;
  try {
    const TraceWriter trace(folder.file("none/trace-00000.json"), 0, 0);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
  }
}

}  // namespace
}  // namespace dtrain::record
