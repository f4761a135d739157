// Every algorithm x size x type x operation on 1 to 4 ranks, in ordinary and in shared memory, on one node
// and on two invented ones: the right sums, and the same bits on all ranks.
#include <gtest/gtest.h>

#include <algorithm>

#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "comm/job.hpp"

namespace dtrain::comm {
namespace {

constexpr std::size_t kPrime = 10007;
constexpr std::size_t kLarge = 1'300'021;  // several chunks and pieces of every algorithm

/// Small whole numbers: exact in every type and order.
int contribution(int rank, std::size_t index) {
  return static_cast<int>((index * 7 + static_cast<std::size_t>(rank) * 3) % 11) - 5;
}

int expected(int ranks, std::size_t index, ReduceOp op) {
  int result = contribution(0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const int value = contribution(rank, index);
    if (op == ReduceOp::sum) result += value;
    if (op == ReduceOp::max) result = std::max(result, value);
    if (op == ReduceOp::min) result = std::min(result, value);
  }
  return result;
}

std::uint16_t top_half(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<std::uint16_t>(bits >> 16);
}

/// The half of a whole number up to 2048.
std::uint16_t half_of(int value) {
  if (value == 0) return 0;
  std::uint32_t bits = 0;
  const auto as_float = static_cast<float>(value);
  std::memcpy(&bits, &as_float, sizeof(bits));
  const std::uint32_t exponent = ((bits >> 23) & 255) - 112;
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000) | (exponent << 10) | ((bits >> 13) & 1023));
}

void store(void* data, std::size_t index, DataType type, int value) {
  switch (type) {
    case DataType::float32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      break;
    case DataType::float64:
      static_cast<double*>(data)[index] = value;
      break;
    case DataType::bfloat16:
      static_cast<std::uint16_t*>(data)[index] = top_half(static_cast<float>(value));
      break;
    case DataType::float16:
      static_cast<std::uint16_t*>(data)[index] = half_of(value);
      break;
    case DataType::int32:
      static_cast<std::int32_t*>(data)[index] = value;
      break;
    case DataType::int64:
      static_cast<std::int64_t*>(data)[index] = value;
      break;
  }
}

/// FNV-1a.
std::int64_t hash_of(const void* data, std::size_t bytes) {
  std::uint64_t hash = 14695981039346656037ULL;
  const auto* const begin = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ begin[i]) * 1099511628211ULL;
  return static_cast<std::int64_t>(hash);
}

bool same_on_all_ranks(const Communicator& world, const Buffer& values) {
  const std::int64_t hash = hash_of(values.data, values.bytes());
  return world.min(hash) == world.max(hash);
}

enum class Memory { ordinary, shared };

void check_one(Job& job, Algorithm algorithm, Memory memory, std::size_t count, DataType type, ReduceOp op) {
  SCOPED_TRACE(std::string(name_of(algorithm)) + " " + std::to_string(count) + " " +
               std::string(name_of(type)) + " " + std::string(name_of(op)) +
               (memory == Memory::shared ? " shared" : ""));
  const std::size_t bytes = count * size_of(type);
  std::vector<std::byte> ordinary(memory == Memory::ordinary ? bytes : 0);
  std::unique_ptr<SharedBuffer> shared;
  if (memory == Memory::shared) shared = job.groups.world().allocate(bytes);
  void* const data = shared ? shared->data() : ordinary.data();
  std::vector<std::byte> wanted(bytes);
  for (std::size_t i = 0; i < count; ++i) {
    store(data, i, type, contribution(job.rank(), i));
    store(wanted.data(), i, type, expected(job.size(), i, op));
  }
  const Buffer values = {data, count, type};
  job.groups.world().all_reduce(values, op, algorithm).wait();
  EXPECT_TRUE(bytes == 0 || std::memcmp(data, wanted.data(), bytes) == 0);
  EXPECT_TRUE(same_on_all_ranks(job.world, values));
}

class AllReduceTest : public testing::TestWithParam<std::tuple<Algorithm, int>> {};

TEST_P(AllReduceTest, GivesTheReductionToEveryRank) {
  const auto [algorithm, nodes] = GetParam();
  Job job(nodes);
  if (nodes > job.size()) GTEST_SKIP() << "fewer ranks than invented nodes";
  for (const Memory memory : {Memory::ordinary, Memory::shared}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kPrime, kLarge}) {
      check_one(job, algorithm, memory, count, DataType::float32, ReduceOp::sum);
    }
    for (const DataType type :
         {DataType::float64, DataType::bfloat16, DataType::float16, DataType::int32, DataType::int64}) {
      check_one(job, algorithm, memory, kPrime, type, ReduceOp::sum);
    }
    for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::int64}) {
      check_one(job, algorithm, memory, kPrime, type, ReduceOp::max);
      check_one(job, algorithm, memory, kPrime, type, ReduceOp::min);
    }
  }
}

/// Sums of fractions depend on the order of adding: the same bits show that each was added once.
TEST_P(AllReduceTest, LeavesTheSameBitsOnEveryRank) {
  const auto [algorithm, nodes] = GetParam();
  Job job(nodes);
  if (nodes > job.size()) GTEST_SKIP() << "fewer ranks than invented nodes";
  for (const std::size_t count : {std::size_t{3}, std::size_t{1000}, kPrime, std::size_t{300'007}}) {
    const auto shared = job.groups.world().allocate(count * sizeof(float));
    std::vector<float> ordinary(count);
    for (float* values : {static_cast<float*>(shared->data()), ordinary.data()}) {
      for (std::size_t i = 0; i < count; ++i)
        values[i] = 1.0F / static_cast<float>(3 + job.rank() * 5 + static_cast<int>(i % 1000));
      const Buffer buffer = {values, count, DataType::float32};
      job.groups.world().all_reduce(buffer, ReduceOp::sum, algorithm).wait();
      EXPECT_TRUE(same_on_all_ranks(job.world, buffer)) << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AllReduceTest,
                         testing::Combine(testing::Values(Algorithm::automatic, Algorithm::mpi,
                                                          Algorithm::ring, Algorithm::tree,
                                                          Algorithm::hierarchical),
                                          testing::Values(1, 2, 3)),
                         [](const auto& param) {
                           return std::string(name_of(std::get<0>(param.param))) +
                                  std::to_string(std::get<1>(param.param)) + "nodes";
                         });

TEST(AllReduceBufferTest, TakesAnyPartOfASharedBuffer) {
  Job job;
  constexpr std::size_t kCount = 100'000;
  const auto shared = job.groups.world().allocate(kCount * sizeof(float));
  auto* const values = static_cast<float*>(shared->data());
  for (std::size_t i = 0; i < kCount; ++i) values[i] = 1;
  const std::size_t begin = 12'345;  // not aligned
  const std::size_t count = 54'321;
  job.groups.world().all_reduce({values + begin, count, DataType::float32}, ReduceOp::sum).wait();
  for (std::size_t i = 0; i < kCount; ++i) {
    const bool inside = i >= begin && i < begin + count;
    ASSERT_EQ(values[i], inside ? static_cast<float>(job.size()) : 1.0F) << i;
  }
}

/// Over nodes such a buffer goes in chunks, and the ranks of like nodes share the work.
TEST(AllReduceBufferTest, ManyChunksOverNodes) {
  constexpr std::size_t kCount = 9'000'011;  // 34 MiB
  for (const int nodes : {2, 3}) {
    Job job(nodes);
    if (nodes > job.size()) continue;
    for (const Memory memory : {Memory::ordinary, Memory::shared}) {
      check_one(job, Algorithm::hierarchical, memory, kCount, DataType::float32, ReduceOp::sum);
    }
    job.world.barrier();
  }
}

TEST(AllReduceBufferTest, ManyInFlightFinishInOrderOfTheirLane) {
  for (const Drive drive : {Drive::inline_, Drive::thread}) {
    Job job(1, {.drive = drive});
    constexpr int kOperations = 40;
    const std::size_t count = 5000;
    const auto shared = job.groups.world().allocate(kOperations * count * sizeof(float));
    auto* const values = static_cast<float*>(shared->data());
    std::vector<Handle> handles;
    for (int k = 0; k < kOperations; ++k) {
      float* const part = values + static_cast<std::size_t>(k) * count;
      for (std::size_t i = 0; i < count; ++i) part[i] = static_cast<float>(k + job.rank());
      const auto algorithm = k % 3 == 0 ? Algorithm::ring : Algorithm::automatic;
      const std::size_t size = k % 4 == 0 ? 100 : count;
      handles.push_back(
          job.groups.world().all_reduce({part, size, DataType::float32}, ReduceOp::sum, algorithm));
      if (k % 5 == 0) job.groups.queue().progress();
    }
    handles.back().wait();
    for (const Handle& handle : handles) EXPECT_TRUE(handle.done());
    job.groups.queue().drain();
    EXPECT_TRUE(job.groups.queue().idle());
    const int n = job.size();
    for (int k = 0; k < kOperations; ++k) {
      EXPECT_EQ(values[static_cast<std::size_t>(k) * count], static_cast<float>(k * n + n * (n - 1) / 2));
    }
  }
}

}  // namespace
}  // namespace dtrain::comm
