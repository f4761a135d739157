#include "comm/survey/clock_offsets.hpp"

#include <gtest/gtest.h>

namespace dtrain::comm {
namespace {

// Each rank is a node of its own, with a clock that is as many seconds ahead as the rank's number.
TEST(ClockOffsetsTest, FindsHowFarEachNodesClockIsAhead) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto cluster = topology::uniform_cluster(world.size(), 1);
  const auto offsets = measure_clock_offsets(world, cluster, [&] { return wall_s() + world.rank(); });
  EXPECT_EQ(static_cast<int>(offsets.size()), world.size());
  for (int node = 0; node < static_cast<int>(offsets.size()); ++node) {
    const auto& [offset_s, uncertainty_s] = offsets[static_cast<std::size_t>(node)];
    EXPECT_NEAR(offset_s, node, uncertainty_s + 1e-6);
    EXPECT_LT(uncertainty_s, 0.1);
  }
}

TEST(ClockOffsetsTest, AsksNobodyOnOneNode) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto offsets = measure_clock_offsets(world, topology::uniform_cluster(1, world.size()));
  EXPECT_EQ(offsets.size(), 1U);
  EXPECT_EQ(offsets[0].offset_s, 0);
}

}  // namespace
}  // namespace dtrain::comm
