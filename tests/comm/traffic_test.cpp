#include "comm/traffic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "comm/job.hpp"

namespace dtrain::comm {
namespace {

using Bytes = std::vector<std::int64_t>;  // by rank

struct Row {
  Bytes sent;
  Bytes received;
};

Row taken(Traffic& traffic) {
  std::vector<MovedBytes> totals;
  traffic.take(totals);
  Row row;
  for (const MovedBytes& bytes : totals) {
    row.sent.push_back(bytes.sent);
    row.received.push_back(bytes.received);
  }
  return row;
}

TEST(TrafficTest, SharesOfAGroupAreEvenAndAddUp) {
  Traffic traffic(2, 5);
  traffic.among({0, 2, 3, 4}).add(10, 2);
  traffic.with(3).add(100, 0);
  const Row row = taken(traffic);
  EXPECT_EQ(row.sent, (Bytes{3, 0, 0, 103, 4}));
  EXPECT_EQ(row.received, (Bytes{0, 0, 0, 1, 1}));
  EXPECT_EQ(taken(traffic).sent, Bytes(5, 0)) << "taken";
}

TEST(TrafficTest, ANewCallAddsToWhatTotalsHave) {
  Traffic traffic(0, 2);
  std::vector<MovedBytes> totals;
  for (int i = 0; i < 2; ++i) {
    traffic.with(1).add(5, 7);
    traffic.take(totals);
  }
  EXPECT_EQ(totals[1].sent, 10);
  EXPECT_EQ(totals[1].received, 14);
}

TEST(TrafficTest, ARankAloneHasNoOneToShareWith) {
  Traffic traffic(0, 1);
  traffic.among({0}).add(0, 0);
  EXPECT_EQ(taken(traffic).sent, Bytes{0});
}

/// Counts the bytes that queues report without saying between which ranks.
class Moved final : public SpanSink {
 public:
  void enter(Phase, std::string_view) override {}
  void leave() override {}
  void overlapped(Phase, std::string_view, std::int64_t, std::int64_t) override {}
  void moved(std::int64_t bytes_sent, std::int64_t bytes_received) override {
    sent += bytes_sent;
    received += bytes_received;
  }
  std::int64_t sent = 0;
  std::int64_t received = 0;
};

/// On so many invented nodes.
class TrafficOfJob : public testing::TestWithParam<int> {
 protected:
  TrafficOfJob() : job_(std::min(GetParam(), Communicator::duplicate(MPI_COMM_WORLD).size())) {}

  /// The rows of all ranks, one after another.
  Bytes gathered(Bytes row) {
    Bytes all(row.size() * row.size());
    job_.groups.world().all_gather(Buffer::of(std::span(row)), Buffer::of(std::span(all))).wait();
    taken(job_.groups.traffic());
    return all;
  }

  std::size_t at(int from, int to) const { return static_cast<std::size_t>(from * job_.size() + to); }

  Job job_;
};

/// Rank r passes rank r+1 every chunk but one in each of the two rounds, and nothing to another rank. Node
/// after node: with the ranks in blocks the order of the ring is that of the ranks. Source: Patarasu and Yuan
/// 2009.
TEST_P(TrafficOfJob, ARingSendsEachNeighbourItsFormula) {
  const int size = job_.size();
  for (const std::int64_t chunk : {16, 4000, 100000}) {  // multiples of 64 bytes: chunks are alike
    std::vector<float> values(static_cast<std::size_t>(chunk * size), 1);
    taken(job_.groups.traffic());
    job_.groups.world().all_reduce(Buffer::of(std::span(values)), ReduceOp::sum, Algorithm::ring).wait();
    const Row mine = taken(job_.groups.traffic());
    const std::int64_t formula =
        size > 1 ? 2 * (size - 1) * chunk * static_cast<std::int64_t>(sizeof(float)) : 0;
    for (int peer = 0; peer < size; ++peer) {
      const auto place = static_cast<std::size_t>(peer);
      EXPECT_EQ(mine.sent[place], peer == (job_.rank() + 1) % size ? formula : 0) << chunk << " to " << peer;
      EXPECT_EQ(mine.received[place], peer == (job_.rank() + size - 1) % size ? formula : 0)
          << chunk << " from " << peer;
    }
  }
}

/// Over messages the ends of every pair tell the same, though each counts for itself.
TEST_P(TrafficOfJob, BothEndsOfAPairTellTheSame) {
  const int size = job_.size();
  for (const std::size_t count : {5U, 10007U, 400001U}) {
    for (const auto algorithm : {Algorithm::ring, Algorithm::tree}) {
      std::vector<float> values(count, 1);
      taken(job_.groups.traffic());
      job_.groups.world().all_reduce(Buffer::of(std::span(values)), ReduceOp::sum, algorithm).wait();
      const Row mine = taken(job_.groups.traffic());
      const Bytes sent = gathered(mine.sent);
      const Bytes received = gathered(mine.received);
      for (int from = 0; from < size; ++from) {
        for (int to = 0; to < size; ++to)
          EXPECT_EQ(sent[at(from, to)], received[at(to, from)])
              << count << " values, " << from << " to " << to;
      }
      // Either way each rank but one is sent to 2 (n-1) times an n-th, or all of them twice.
      EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), std::int64_t{0}),
                2 * (size - 1) * static_cast<std::int64_t>(count * sizeof(float)));
    }
  }
}

TEST_P(TrafficOfJob, AMessageCountsForItsTwoRanks) {
  if (job_.size() < 2) GTEST_SKIP() << "needs two ranks";
  std::vector<float> values(100, 1);
  taken(job_.groups.traffic());
  Group& world = job_.groups.world();
  if (job_.rank() == 0) world.send(Buffer::of(std::span(values)), 1).wait();
  if (job_.rank() == 1) world.receive(Buffer::of(std::span(values)), 0).wait();
  const Row mine = taken(job_.groups.traffic());
  for (int peer = 0; peer < job_.size(); ++peer) {
    const auto place = static_cast<std::size_t>(peer);
    EXPECT_EQ(mine.sent[place], job_.rank() == 0 && peer == 1 ? 400 : 0);
    EXPECT_EQ(mine.received[place], job_.rank() == 1 && peer == 0 ? 400 : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, TrafficOfJob, testing::Values(1, 2, 4));

/// Whatever is done, and however: all bytes that are counted are counted for some peer, none for this rank.
TEST(TrafficTest, PeersAddUpToWhatIsCountedInAll) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  for (const int nodes : {1, 2}) {
    if (nodes > world.size()) continue;
    const auto cluster = spread_over(discover_cluster(world, affinity_mask()), nodes);
    Moved moved;
    Groups groups = make_groups(world, cluster, topology::Mesh(cluster, {.data = world.size()}),
                                {.timeout_s = 30}, moved);
    Group& group = groups.world();
    const auto size = static_cast<std::size_t>(world.size());
    for (const std::size_t count : {1U, 1000U, 300'000U}) {
      std::vector<float> values(count * size, 1);
      std::vector<float> part(count, 1);
      const auto shared = group.allocate(count * size * sizeof(float));
      const Buffer lasting = {shared->data(), count * size, DataType::float32};
      std::fill_n(static_cast<float*>(shared->data()), count * size, 1.0F);
      for (const auto algorithm : {Algorithm::automatic, Algorithm::mpi}) {
        group.all_reduce(Buffer::of(std::span(values)), ReduceOp::max, algorithm).wait();
        group.all_reduce(lasting, ReduceOp::max, algorithm).wait();
        group.reduce_parts(lasting, ReduceOp::max, algorithm).wait();
      }
      group.broadcast(lasting, world.size() - 1).wait();
      group.broadcast(Buffer::of(std::span(values)), 0).wait();
      group.reduce_scatter(Buffer::of(std::span(values)), Buffer::of(std::span(part)), ReduceOp::max).wait();
      group.all_gather(Buffer::of(std::span(part)), Buffer::of(std::span(values))).wait();
      std::vector<float> turned(values.size());
      group.all_to_all(Buffer::of(std::span(values)), Buffer::of(std::span(turned))).wait();
      group.barrier().wait();  // none reads the buffer that goes now
    }
    const Row row = taken(groups.traffic());
    EXPECT_EQ(row.sent[static_cast<std::size_t>(world.rank())], 0);
    EXPECT_EQ(std::accumulate(row.sent.begin(), row.sent.end(), std::int64_t{0}), moved.sent)
        << nodes << " nodes";
    EXPECT_EQ(std::accumulate(row.received.begin(), row.received.end(), std::int64_t{0}), moved.received)
        << nodes << " nodes";
    EXPECT_EQ(moved.sent > 0, world.size() > 1);
  }
}

}  // namespace
}  // namespace dtrain::comm
