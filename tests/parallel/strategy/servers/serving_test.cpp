#include "parallel/strategy/servers/serving.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "core/error.hpp"
#include "parallel/strategy/asgd.hpp"
#include "parallel/strategy/job_of_servers.hpp"

namespace dtrain::parallel {
namespace {

TEST(ServerRolesTest, TheLastRanksServeOrAllOfThem) {
  const ServerRoles last(5, 2);
  EXPECT_EQ(last.copies(), 3);
  EXPECT_EQ(last.dealer(), 3);
  EXPECT_TRUE(last.computes(2));
  EXPECT_FALSE(last.computes(3));
  EXPECT_FALSE(last.server_at(2));
  EXPECT_EQ(last.server_at(4), 1);
  EXPECT_EQ(last.rank_of(1), 4);
  EXPECT_EQ(last.part(10, 1).begin, 5);
  const ServerRoles all(3, 0);
  EXPECT_TRUE(all.beside());
  EXPECT_EQ(all.copies(), 3);
  EXPECT_EQ(all.servers(), 3);
  EXPECT_TRUE(all.computes(2));
  EXPECT_EQ(all.server_at(2), 2);
  EXPECT_EQ(all.part(9, 2).begin, 6);
}

// Leaves messages behind: the last test of its program.
TEST(ServingTest, WhereARankFailsTheThreadsEndAndNoneWaits) {
  JobOfServers job(comm::Drive::thread);
  const auto begun = std::chrono::steady_clock::now();
  {
    Asgd strategy(job.parts({.servers = 0, .staleness = 1}, {.name = "sgd"}));
    if (job.rank() == job.copies() - 1) {
      EXPECT_TRUE(strategy.take_work({.first = 1, .last = 50}));
      job.queue().fail("this rank's data cannot be read");
    } else {
      EXPECT_THROW(job.train(strategy, {.first = 1, .last = 50}), Error);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10))
      << "the limit of a wait is 20";
}

}  // namespace
}  // namespace dtrain::parallel
