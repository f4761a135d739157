#include "comm/mpi/meeting.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>

#include "comm/job.hpp"
#include "comm/mpi/communicator.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

using testing::HasSubstr;

template <typename Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {"no error", {}};
}

void pause_for(double seconds) {
  for (double passed = 0; passed < seconds; passed += 0.01)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

TEST(MeetingTest, ARankThatDoesNotComeIsNamedByAllOthers) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto short_of_time = Communicator::duplicate(MPI_COMM_WORLD, 1);
  const int late = world.size() - 1;
  if (late > 0 && world.rank() != late) {
    const Error error = error_of([&] { short_of_time.broadcast("x", 0); });
    EXPECT_EQ(error.code(), ExitCode::lost_rank);
    EXPECT_THAT(error.what(),
                HasSubstr("broadcast: rank " + std::to_string(late) + " has not arrived within"));
  }
  world.barrier();
}

TEST(MeetingTest, TheRankThatOthersReportToMayBeTheLateOne) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto short_of_time = Communicator::duplicate(MPI_COMM_WORLD, 1);
  if (world.rank() > 0) {
    const Error error = error_of([&] { short_of_time.barrier(); });
    EXPECT_EQ(error.code(), ExitCode::lost_rank);
    EXPECT_THAT(error.what(), HasSubstr("barrier: rank 0 has not arrived within"));
  }
  world.barrier();
}

// What others wait for longer than a limit and a little is rank 0 itself.
TEST(MeetingTest, ALateRankZeroIsNamedAfterOneLimit) {
  constexpr double kLimitS = 10;
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto quick = Communicator::duplicate(MPI_COMM_WORLD, kLimitS);
  if (world.size() == 1) GTEST_SKIP() << "needs a second rank";
  std::byte word{};
  if (world.rank() == 0) {
    pause_for(2 * kLimitS);
    for (int rank = 1; rank < world.size(); ++rank) world.send_bytes(std::span(&word, 1), rank);
  } else {
    const Error error = error_of([&] { quick.barrier(); });
    EXPECT_THAT(error.what(), HasSubstr("barrier: rank 0 has not arrived within 10 s"));
    int is_there = 0;
    MPI_Iprobe(0, MPI_ANY_TAG, world.handle(), &is_there, MPI_STATUS_IGNORE);
    EXPECT_EQ(is_there, 0) << "two limits had passed";
    world.receive_bytes(std::span(&word, 1), 0);
  }
  world.barrier();
}

TEST(MeetingTest, ARankZeroThatComesWithinTheLimitIsNotAccused) {
  constexpr double kLimitS = 7;
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto quick = Communicator::duplicate(MPI_COMM_WORLD, kLimitS);
  if (world.size() < 3) GTEST_SKIP() << "needs a third rank";
  const int missing = world.size() - 1;
  if (world.rank() != missing) {
    if (world.rank() == 0) pause_for(kLimitS - 0.5);
    const Error error = error_of([&] { quick.barrier(); });
    EXPECT_EQ(error.code(), ExitCode::lost_rank);
    EXPECT_THAT(error.what(),
                HasSubstr("barrier: rank " + std::to_string(missing) + " has not arrived within 7 s"));
  }
  world.barrier();
}

TEST(MeetingTest, OtherCallsAreNamed) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto tried = world.split(0, world.rank());
  if (world.size() > 1) {
    const Error error = error_of([&] {
      if (world.rank() == 1)
        tried.broadcast("x", 0);
      else
        tried.barrier();
    });
    EXPECT_EQ(error.code(), ExitCode::failure);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 calls broadcast where rank 0 calls barrier"));
  }
  world.barrier();
}

TEST(MeetingTest, ALongPhaseGivesTimeAndEnds) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto quick = Communicator::duplicate(MPI_COMM_WORLD, 1);
  const auto part = quick.split(0, quick.rank());
  const int late = world.size() - 1;
  {
    const LongPhase phase(quick, 60);
    const LongPhase shorter(part, 2);  // grants nothing more
    if (world.rank() == late) {
      for (int i = 0; i < 160; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_NO_THROW(part.barrier());
  }
  EXPECT_DOUBLE_EQ(*part.allowance(), 0);
  world.barrier();
  if (late > 0 && world.rank() != late) {
    EXPECT_EQ(error_of([&] { part.barrier(); }).code(), ExitCode::lost_rank);
  }
  world.barrier();
}

TEST(MeetingTest, OperationsOfGroupsHaveTheSameTime) {
  Job job(1, {.timeout_s = 0.1});
  if (job.size() == 1) GTEST_SKIP() << "nobody to wait for";
  {
    const LongPhase phase(job.world, 60);
    if (job.rank() == 0) {
      for (int i = 0; i < 30; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_NO_THROW(job.groups.world().barrier().wait());
  }
  job.world.barrier();
}

TEST(MeetingTest, AMessageThatDoesNotComeNamesItsSender) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto quick = Communicator::duplicate(MPI_COMM_WORLD, 1);
  if (world.rank() == 1) {
    std::byte word{};
    const Error error = error_of([&] { quick.receive_bytes(std::span(&word, 1), 0); });
    EXPECT_EQ(error.code(), ExitCode::lost_rank);
    EXPECT_THAT(error.what(), HasSubstr("receive: rank 0 has not sent a message within 1 s"));
  }
  world.barrier();
}

}  // namespace
}  // namespace dtrain::comm
