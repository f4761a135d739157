#include "comm/mpi/communicator.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dtrain::comm {
namespace {

TEST(CommunicatorTest, AllReduceSumAddsEveryRanksContribution) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  std::vector<float> values = {1.0F, static_cast<float>(world.rank())};
  world.all_reduce_sum(values);
  const int n = world.size();
  EXPECT_FLOAT_EQ(values[0], static_cast<float>(n));
  EXPECT_FLOAT_EQ(values[1], static_cast<float>(n * (n - 1) / 2));  // 0 + 1 + ... + (n-1)
}

TEST(CommunicatorTest, GathersNumbersAndTextsOfDifferentLengths) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto texts = world.all_gather(std::string(static_cast<std::size_t>(world.rank()), 'x'));
  const auto numbers = world.all_gather(std::int64_t{world.rank()} * 10);
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(texts[static_cast<std::size_t>(rank)].size(), static_cast<std::size_t>(rank));
    EXPECT_EQ(numbers[static_cast<std::size_t>(rank)], rank * 10);
  }
  EXPECT_EQ(world.max(std::int64_t{world.rank()}), world.size() - 1);
  EXPECT_EQ(world.min(std::int64_t{world.rank()}), 0);
}

TEST(CommunicatorTest, BroadcastsTheRootsText) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const int root = world.size() - 1;
  EXPECT_EQ(world.broadcast(world.rank() == root ? "from the root" : "", root), "from the root");
}

TEST(CommunicatorTest, SplitsByColorInTheOrderOfTheKey) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const Communicator part = world.split(world.rank() % 2, -world.rank());
  EXPECT_EQ(part.size(), (world.size() + 1 - world.rank() % 2) / 2);
  EXPECT_EQ(part.rank(), part.size() - 1 - world.rank() / 2);
}

TEST(CommunicatorTest, MovedFromOwnsNothing) {
  auto world = Communicator::duplicate(MPI_COMM_WORLD);
  Communicator taken = std::move(world);
  EXPECT_EQ(world.handle(), MPI_COMM_NULL);  // NOLINT: that is the question
  taken = Communicator::duplicate(MPI_COMM_WORLD);
  taken.barrier();
  EXPECT_NE(taken.handle(), MPI_COMM_NULL);
}

}  // namespace
}  // namespace dtrain::comm
