// Long messages go in pieces of the length that the configuration names, whatever the operation.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "comm/job.hpp"
#include "core/error.hpp"

namespace {
std::atomic<int> longest_sent = 0;
}

/// Every message that this program sends passes here.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  int now = longest_sent;
  while (count > now && !longest_sent.compare_exchange_weak(now, count)) {
  }
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

namespace dtrain::comm {
namespace {

constexpr int kPiece = 300;

class PiecesTest : public testing::Test {
 protected:
  PiecesTest() { std::iota(values.begin(), values.end(), 0); }

  /// Each rank on a node of its own: whatever they have for one another is a message.
  Job job{Communicator::duplicate(MPI_COMM_WORLD).size(), {.piece_bytes = kPiece}};
  Group& world = job.groups.world();
  std::vector<std::int64_t> values = std::vector<std::int64_t>(1000);
};

TEST_F(PiecesTest, OfMessages) {
  std::vector<std::int64_t> got(values.size());
  longest_sent = 0;
  const int next = (job.rank() + 1) % job.size();
  const int before = (job.rank() + job.size() - 1) % job.size();
  auto sent = world.send(Buffer::of(std::span(values)), next);
  world.receive(Buffer::of(std::span(got)), before).wait();
  sent.wait();
  EXPECT_EQ(longest_sent, kPiece);
  EXPECT_EQ(got, values);
  job.world.barrier();
}

TEST_F(PiecesTest, OfCollectives) {
  for (const Algorithm algorithm : {Algorithm::tree, Algorithm::ring, Algorithm::hierarchical}) {
    auto sums = values;
    longest_sent = 0;
    world.all_reduce(Buffer::of(std::span(sums)), ReduceOp::max, algorithm).wait();
    EXPECT_EQ(longest_sent, kPiece);
    EXPECT_EQ(sums, values);
  }
  longest_sent = 0;
  auto copy = values;
  world.broadcast(Buffer::of(std::span(copy)), 0).wait();
  if (job.rank() == 0) {
    EXPECT_EQ(longest_sent, kPiece);
  }
  EXPECT_EQ(copy, values);
  std::vector<std::int64_t> swapped(values.size());
  longest_sent = 0;
  world.all_to_all(Buffer::of(std::span(values)), Buffer::of(std::span(swapped))).wait();
  EXPECT_EQ(longest_sent, kPiece);
  job.world.barrier();
}

// MPI may still owe peers an answer to what a rank has received: a rank that then sleeps until the others of
// its node have come must let MPI go on, or those wait for ever.
TEST(PieceLengthTest, PeersGetTheirAnswersWhileARankWaitsWithinItsNode) {
  Job job(1, {.piece_bytes = 4096});
  for (int i = 0; i < 10; ++i) {
    std::vector<std::int32_t> values(300'000, job.rank());
    job.groups.world().all_reduce(Buffer::of(std::span(values)), ReduceOp::max, Algorithm::tree).wait();
    job.groups.world().barrier().wait();
    EXPECT_EQ(values.back(), job.size() - 1);
  }
}

TEST(PieceLengthTest, ThatMpiCannotCountIsRefused) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1} << 31}) {
    const CommConfig config = {.piece_bytes = bytes};
    EXPECT_THROW(config.validate(), Error);
  }
}

}  // namespace
}  // namespace dtrain::comm
