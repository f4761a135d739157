#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "comm/job.hpp"
#include "core/slice.hpp"

namespace dtrain::comm {
namespace {

class CollectivesTest : public testing::TestWithParam<int> {
 protected:
  CollectivesTest() : job_(GetParam() <= Communicator::duplicate(MPI_COMM_WORLD).size() ? GetParam() : 1) {}
  Group& world() { return job_.groups.world(); }
  int rank() const { return job_.rank(); }
  int size() const { return job_.size(); }
  Job job_;
};

TEST_P(CollectivesTest, BroadcastGivesTheRootsValues) {
  for (int root = 0; root < size(); ++root) {
    for (const std::size_t count : {0U, 1U, 10007U, 700001U}) {
      std::vector<std::int32_t> values(count);
      if (rank() == root) std::iota(values.begin(), values.end(), root);
      world().broadcast(Buffer::of(std::span(values)), root).wait();
      std::vector<std::int32_t> wanted(count);
      std::iota(wanted.begin(), wanted.end(), root);
      EXPECT_EQ(values, wanted) << "root " << root;
    }
  }
}

TEST_P(CollectivesTest, BroadcastFromASharedBufferReachesOrdinaryOnes) {
  constexpr std::size_t kCount = 100'003;
  const auto shared = world().allocate(kCount * sizeof(double));
  std::vector<double> ordinary(kCount);
  const int root = size() - 1;
  auto* const values = rank() == root ? static_cast<double*>(shared->data()) : ordinary.data();
  if (rank() == root) std::iota(values, values + kCount, 0.5);
  world().broadcast({values, kCount, DataType::float64}, root).wait();
  EXPECT_EQ(values[kCount - 1], static_cast<double>(kCount) - 0.5);
}

TEST_P(CollectivesTest, ReduceScatterGivesEachRankItsPart) {
  for (const std::size_t count : {0U, 1U, 2U, 10007U, 400001U}) {
    std::vector<double> input(count);
    for (std::size_t i = 0; i < count; ++i) input[i] = static_cast<double>(i) + rank();
    const Range mine = part_of(static_cast<std::int64_t>(count), rank(), size());
    std::vector<double> output(static_cast<std::size_t>(mine.size()));
    world().reduce_scatter(Buffer::of(std::span(input)), Buffer::of(std::span(output)), ReduceOp::sum).wait();
    for (std::size_t i = 0; i < output.size(); ++i) {
      const auto index = static_cast<double>(mine.begin) + static_cast<double>(i);
      ASSERT_EQ(output[i], index * size() + size() * (size() - 1) / 2.0);
    }
  }
}

/// Small, odd and large; in memory from allocate() and in ordinary memory; by every algorithm.
TEST_P(CollectivesTest, ReducePartsCoverTheSumsBetweenThem) {
  for (const std::size_t count : {1U, 129U, 10007U, 400001U}) {
    const auto shared = world().allocate(count * sizeof(double));
    std::vector<double> ordinary(count);
    for (auto* values : {static_cast<double*>(shared->data()), ordinary.data()}) {
      for (const auto algorithm : {Algorithm::automatic, Algorithm::ring}) {
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(i) + rank();
        const Buffer buffer = {values, count, DataType::float64};
        world().reduce_parts(buffer, ReduceOp::sum, algorithm).wait();
        const Range mine = world().reduced_part(buffer, algorithm);
        std::vector<std::int64_t> covered(count, 0);
        for (auto i = mine.begin; i < mine.end; ++i) {
          covered[static_cast<std::size_t>(i)] = 1;
          ASSERT_EQ(values[i], static_cast<double>(i) * size() + size() * (size() - 1) / 2.0);
        }
        const bool whole = mine.size() == static_cast<std::int64_t>(count);
        world().all_reduce(Buffer::of(std::span(covered)), ReduceOp::sum).wait();
        EXPECT_EQ(covered, std::vector<std::int64_t>(count, whole ? size() : 1));
      }
    }
  }
}

TEST_P(CollectivesTest, CommonMemoryIsTheSameOnAllRanksOfANodeAndAbsentAcrossNodes) {
  const auto common = world().allocate_common(1000 * sizeof(std::int64_t));
  if (GetParam() > 1 && GetParam() <= size()) {
    EXPECT_EQ(common, nullptr);
    return;
  }
  if (size() == 1) GTEST_SKIP() << "nobody to share with";
  ASSERT_NE(common, nullptr);
  auto* const values = static_cast<std::int64_t*>(common->data());
  EXPECT_EQ(values[999], 0);
  world().barrier().wait();
  if (rank() == size() - 1) values[999] = 42;
  world().barrier().wait();
  EXPECT_EQ(values[999], 42);
}

TEST_P(CollectivesTest, AllGatherJoinsTheParts) {
  for (const std::size_t count : {0U, 1U, 2U, 10007U, 400001U}) {
    const Range mine = part_of(static_cast<std::int64_t>(count), rank(), size());
    std::vector<std::int64_t> output(count, -1);
    std::vector<std::int64_t> input(static_cast<std::size_t>(mine.size()));
    std::iota(input.begin(), input.end(), mine.begin);
    world().all_gather(Buffer::of(std::span(input)), Buffer::of(std::span(output))).wait();
    std::vector<std::int64_t> wanted(count);
    std::iota(wanted.begin(), wanted.end(), 0);
    EXPECT_EQ(output, wanted);
    // In place: the part already lies where it belongs.
    const Buffer part = {output.data() + mine.begin, input.size(), DataType::int64};
    world().all_gather(part, Buffer::of(std::span(output))).wait();
    EXPECT_EQ(output, wanted);
  }
}

/// From memory of allocate(), and with the result where the input was.
TEST_P(CollectivesTest, PartsAreReducedAndJoinedWithinSharedBuffers) {
  for (const std::size_t count : {1U, 2U, 10007U, 400001U}) {
    const auto shared = world().allocate(count * sizeof(double));
    const auto joined = world().allocate(count * sizeof(double));
    auto* const values = static_cast<double*>(shared->data());
    const Range mine = part_of(static_cast<std::int64_t>(count), rank(), size());
    const Buffer part = {values + mine.begin, static_cast<std::size_t>(mine.size()), DataType::float64};
    for (int round = 0; round < 2; ++round) {
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(i) + rank() + round;
      world().reduce_scatter({values, count, DataType::float64}, part, ReduceOp::sum).wait();
      world().all_gather(part, {joined->data(), count, DataType::float64}).wait();
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(static_cast<double*>(joined->data())[i],
                  (static_cast<double>(i) + round) * size() + size() * (size() - 1) / 2.0);
      }
    }
  }
}

TEST_P(CollectivesTest, AllToAllTransposesBlocks) {
  for (const std::size_t block : {0U, 1U, 1009U, 100003U}) {
    const auto n = static_cast<std::size_t>(size());
    std::vector<float> input(block * n);
    std::vector<float> output(block * n, -1);
    for (std::size_t i = 0; i < input.size(); ++i)
      input[i] = static_cast<float>(rank() * 100 + static_cast<int>(i / block));
    world().all_to_all(Buffer::of(std::span(input)), Buffer::of(std::span(output))).wait();
    for (std::size_t i = 0; i < output.size(); ++i)
      ASSERT_EQ(output[i], static_cast<float>(i / block * 100) + static_cast<float>(rank()));
  }
}

TEST_P(CollectivesTest, SendsAndReceivesCrossWithoutDeadlock) {
  if (size() == 1) GTEST_SKIP() << "nobody to send to";
  const int next = (rank() + 1) % size();
  const int previous = (rank() + size() - 1) % size();
  constexpr std::size_t kLarge = 1 << 20;  // beyond any eager limit
  std::vector<float> out(kLarge, static_cast<float>(rank()));
  std::vector<float> second(10, static_cast<float>(rank() + 100));
  std::vector<float> in(kLarge);
  std::vector<float> in_second(10);
  const Handle sent = world().send(Buffer::of(std::span(out)), next);
  const Handle sent_second = world().send(Buffer::of(std::span(second)), next);
  const Handle came = world().receive(Buffer::of(std::span(in)), previous);
  world().receive(Buffer::of(std::span(in_second)), previous).wait();
  came.wait();
  sent.wait();
  sent_second.wait();
  EXPECT_EQ(in[kLarge - 1], static_cast<float>(previous));
  EXPECT_EQ(in_second[9], static_cast<float>(previous + 100));
}

TEST_P(CollectivesTest, BarrierWaitsForEveryRank) {
  for (int late = 0; late < size(); ++late) {
    const Handle passed = rank() == late ? Handle() : world().barrier();
    if (rank() != late) {
      job_.groups.queue().progress();
      EXPECT_EQ(passed.done(), size() == 1);
    }
    job_.world.barrier();
    if (rank() == late) world().barrier().wait();
    passed.wait();
  }
}

INSTANTIATE_TEST_SUITE_P(OnNodes, CollectivesTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace dtrain::comm
