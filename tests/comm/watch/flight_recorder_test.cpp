#include "comm/watch/flight_recorder.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <numeric>
#include <sstream>
#include <thread>

#include "core/clock.hpp"

namespace dtrain::comm {
namespace {

class FlightRecorderTest : public testing::Test {
 protected:
  FlightRecorderTest() : everyone_(static_cast<std::size_t>(world_.size())) {
    std::iota(everyone_.begin(), everyone_.end(), 0);
  }
  Label label(std::uint64_t number, std::string_view operation = "all_reduce",
              std::uint64_t count = 5) const {
    return {.operation = operation,
            .group = "data",
            .number = number,
            .group_id = 77,
            .members = &everyone_,
            .count = count};
  }
  void record(const Label& operation) {
    const auto flight = recorder_.queued(operation);
    recorder_.started(flight, steady_ns());
    recorder_.ended(flight, steady_ns());
  }
  /// What is found on number 3.
  std::string verdict() {
    world_.barrier();
    const auto findings = recorder_.findings(label(3), 10.0);
    world_.barrier();
    std::string text;
    for (const auto& finding : findings) text += finding + "\n";
    return text;
  }
  bool is_last() const { return world_.rank() == world_.size() - 1; }
  std::string last() const { return "rank " + std::to_string(world_.size() - 1); }

  NullSpanSink spans_;
  Communicator world_ = Communicator::duplicate(MPI_COMM_WORLD);
  std::vector<int> everyone_;
  FlightRecorder recorder_{world_, world_.rank(), spans_};
};

TEST_F(FlightRecorderTest, KeepsTheLast256OperationsAndPrintsThemInOrder) {
  for (std::uint64_t number = 1; number <= 300; ++number) record(label(number));
  world_.barrier();
  std::ostringstream text;
  recorder_.print(0, 0, text);
  std::istringstream lines(text.str());
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  ASSERT_EQ(all.size(), 1 + FlightRecorder::kFlights);
  EXPECT_EQ(all[0], "group,number,operation,count,type,queued_s,started_s,ended_s");
  EXPECT_EQ(all[1].rfind("data,45,all_reduce,5,float32,", 0), 0U) << all[1];
  EXPECT_EQ(all.back().rfind("data,300,all_reduce,5,float32,", 0), 0U) << all.back();
}

TEST_F(FlightRecorderTest, WhoHasNotComeIsNamedWithWhatItDoes) {
  if (world_.size() == 1) return;
  recorder_.begin_step(9);
  record(label(2));
  {
    const ScopedSpan span(recorder_, Phase::backward, "backward");
    if (!is_last()) recorder_.started(recorder_.queued(label(3)), steady_ns());
    const auto text = verdict();
    if (!is_last()) {
      EXPECT_NE(text.find(last() + " is slow: in backward of step 9 for 0."), std::string::npos) << text;
      EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;  // those who have come are not named
    }
  }
}

TEST_F(FlightRecorderTest, WhoDoesSomethingElseIsMismatched) {
  if (world_.size() == 1) return;
  recorder_.queued(is_last() ? label(3, "broadcast") : label(3));
  const auto other = verdict();
  if (!is_last()) {
    EXPECT_NE(other.find(last() + " is mismatched: its operation of that number is broadcast"),
              std::string::npos)
        << other;
  }
}

TEST_F(FlightRecorderTest, WhoPassesSomethingElseIsMismatched) {
  if (world_.size() == 1) return;
  recorder_.queued(label(3, "all_reduce", is_last() ? 4 : 5));
  const auto other = verdict();
  if (!is_last()) {
    EXPECT_NE(other.find("it passed 4 float32 where this rank passed 5 float32"), std::string::npos) << other;
  }
}

TEST_F(FlightRecorderTest, MessagesAreNoCounterpartsOfCollectives) {
  if (world_.size() == 1) return;
  auto message = label(3, "receive", 9);
  message.peer = 0;
  recorder_.queued(is_last() ? message : label(3));
  const auto text = verdict();
  if (!is_last()) {
    EXPECT_EQ(text.find("mismatched"), std::string::npos) << text;
    EXPECT_NE(text.find(last()), std::string::npos) << text;
  }
}

TEST_F(FlightRecorderTest, OfAMessageOnlyTheOtherEndIsAsked) {
  if (world_.size() < 3) return;
  auto message = label(1, "receive");
  message.peer = 1;
  world_.barrier();
  const auto findings = recorder_.findings(message, 10.0);
  world_.barrier();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].rfind("rank 1 is slow", 0), 0U) << findings[0];
}

TEST_F(FlightRecorderTest, ButASuspendedRankIsNamedToAll) {
  if (world_.size() < 3) return;
  auto message = label(1, "receive");
  message.peer = 1;
  world_.barrier();
  if (is_last()) {
    const auto here = ::getpid();
    const auto child = ::fork();
    if (child == 0) {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      ::kill(here, SIGCONT);
      ::_exit(0);
    }
    std::raise(SIGSTOP);
    ::waitpid(child, nullptr, 0);
  }
  std::string text;
  const auto names_it = [&] { return text.find(last() + " is suspended") != std::string::npos; };
  for (int round = 0; !is_last() && !names_it() && round < 250; ++round) {
    text.clear();
    for (const auto& finding : recorder_.findings(message, 10.0)) text += finding + "\n";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(is_last() || names_it()) << text;
  world_.barrier();
}

}  // namespace
}  // namespace dtrain::comm
