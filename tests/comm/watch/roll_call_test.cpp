#include "comm/watch/roll_call.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/error.hpp"

namespace dtrain::comm {
namespace {

TEST(RollCallTest, EndsWhenAllHaveCome) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto cluster = topology::uniform_cluster(world.size(), 1);
  for (int i = 0; i < 3; ++i) {
    if (world.rank() == i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_NO_THROW(roll_call(world, cluster, 30));
  }
}

TEST(RollCallTest, NamesWhoDoesNotCome) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "needs a second rank";
  const auto cluster = topology::uniform_cluster(world.size(), 1);
  if (world.rank() == 0) {
    try {
      roll_call(world, cluster, 0.3);
      ADD_FAILURE() << "rank 1 came late";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("rank 1 on node1 has not come within 0.3 s"));
      EXPECT_THAT(error.advice(), testing::HasSubstr("leave it out"));
    }
    world.patient_barrier();
    return;
  }
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  roll_call(world, cluster, 0.3);
}

}  // namespace
}  // namespace dtrain::comm
