// Random meshes, numbers of micro-batches and sizes of messages: operations of all of a mesh's groups pass
// through each rank's one queue at once, and none may wait for another for ever.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "comm/groups.hpp"
#include "comm/survey/discover.hpp"
#include "core/span_sink.hpp"

namespace dtrain::parallel {
namespace {

constexpr int kMeshes = 100;
constexpr std::size_t kLargest = 60'000;  // elements; some are empty

/// How many meshes to try: DTRAIN_MESHES, which the full tests set.
int mesh_count() {
  const char* const wanted = std::getenv("DTRAIN_MESHES");
  return wanted != nullptr ? std::atoi(wanted) : kMeshes;
}

/// The same on every rank.
class Plan {
 public:
  Plan(int number, int ranks) : random_(static_cast<unsigned>(number)) {
    std::vector<topology::MeshShape> shapes;
    for (int tensor = 1; tensor <= ranks; ++tensor) {
      for (int pipe = 1; pipe * tensor <= ranks; ++pipe) {
        if (ranks % (pipe * tensor) == 0)
          shapes.push_back({.data = ranks / (pipe * tensor), .pipe = pipe, .tensor = tensor});
      }
    }
    shape = shapes[below(shapes.size())];
    micro_batches = 1 + static_cast<int>(below(6));
  }
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
  /// Small messages take other ways than large ones.
  std::size_t size() { return below(3) == 0 ? below(20) : below(kLargest); }

  topology::MeshShape shape;
  int micro_batches = 0;

 private:
  std::mt19937 random_;
};

std::vector<float> filled(std::size_t n, int value) {
  return std::vector<float>(n, static_cast<float>(value));
}

void expect_all(const std::vector<float>& values, int expected, const char* what) {
  for (const float value : values) ASSERT_EQ(value, static_cast<float>(expected)) << what;
}

/// The sum of the world ranks of a group.
int sum_of(const comm::Group& group) {
  int sum = 0;
  for (int rank = 0; rank < group.size(); ++rank) sum += group.world_rank_of(rank);
  return sum;
}

/// A step as a hybrid mesh has it: per micro-batch activations from the stage before, two sums over the
/// tensor group that are waited for, activations to the next stage; buckets over the data group on the way.
void run_step(comm::Groups& groups, Plan& plan, int rank) {
  auto& pipe = groups.pipe();
  std::vector<std::vector<float>> kept;  // until all handles are done
  kept.reserve(static_cast<std::size_t>(4 * plan.micro_batches));
  std::vector<comm::Handle> sends;
  std::vector<std::pair<comm::Handle, std::size_t>> buckets;
  for (int m = 0; m < plan.micro_batches; ++m) {
    const std::size_t activations = plan.size();
    const std::size_t sliced = plan.size();
    const std::size_t bucket = plan.size();
    if (pipe.rank() > 0) {
      std::vector<float> received(activations);
      pipe.receive(comm::Buffer::of(std::span(received)), pipe.rank() - 1).wait();
      expect_all(received, 100 * m + pipe.rank() - 1, "activations");
    }
    for (int i = 0; i < 2; ++i) {
      auto partial = filled(sliced, rank);
      groups.tensor().all_reduce(comm::Buffer::of(std::span(partial)), comm::ReduceOp::sum).wait();
      expect_all(partial, sum_of(groups.tensor()), "sum of slices");
    }
    if (pipe.rank() + 1 < pipe.size()) {
      kept.push_back(filled(activations, 100 * m + pipe.rank()));
      sends.push_back(pipe.send(comm::Buffer::of(std::span(kept.back())), pipe.rank() + 1));
    }
    kept.push_back(filled(bucket, rank));
    buckets.emplace_back(
        groups.data().all_reduce(comm::Buffer::of(std::span(kept.back())), comm::ReduceOp::sum),
        kept.size() - 1);
    groups.queue().progress();
  }
  for (auto& send : sends) send.wait();
  for (auto& [handle, place] : buckets) {
    handle.wait();
    expect_all(kept[place], sum_of(groups.data()), "bucket");
  }
  double total = 1;
  groups.world().all_reduce(comm::Buffer::of(std::span(&total, 1)), comm::ReduceOp::sum).wait();
  EXPECT_EQ(total, groups.world().size());
}

TEST(MeshStressTest, RandomMeshesComeToTheirEnd) {
  NullSpanSink sink;
  const auto world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  const auto cluster = comm::discover_cluster(world, comm::affinity_mask());
  for (int number = 0; number < mesh_count(); ++number) {
    Plan plan(number, world.size());
    SCOPED_TRACE(plan.shape.to_string());
    auto groups =
        comm::make_groups(world, cluster, topology::Mesh(cluster, plan.shape), {.timeout_s = 20}, sink);
    run_step(groups, plan, world.rank());
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace dtrain::parallel
