// Sums of gradients and gathers of parameters on communicators of their own: on each rank they complete in
// another order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "comm/passing_group.hpp"
#include "parallel/gradients/plain_gradient.hpp"
#include "parallel/gradients/sharded_sums.hpp"
#include "parallel/late_operation.hpp"
#include "parallel/memory/layer_shards.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kSamples = 13;
constexpr int kPieces = 5;

/// What a rank has seen of both lanes.
struct Lanes {
  std::string completed;          // in this order: s for a sum, g for a gather
  std::map<char, int> in_flight;  // by letter
  char quick = ' ';               // operations of the other lane complete after all of this one
};

/// Whose operations are complete later than they really are.
class LateGroup final : public comm::PassingGroup {
 public:
  LateGroup(comm::Group& group, comm::Queue& queue, char letter, Lanes& lanes)
      : PassingGroup(group), queue_(queue), letter_(letter), lanes_(lanes) {}

  comm::Handle reduce_scatter(comm::Buffer input, comm::Buffer output, comm::ReduceOp op) override {
    return later(PassingGroup::reduce_scatter(input, output, op));
  }
  comm::Handle all_gather(comm::Buffer input, comm::Buffer output) override {
    return later(PassingGroup::all_gather(input, output));
  }

 private:
  // Another operation has the time to leave before a slow one is complete.
  static constexpr int kSlowLooks = 20;

  comm::Handle later(const comm::Handle& real) {
    ++lanes_.in_flight[letter_];
    const bool slow = lanes_.quick != letter_;
    const auto ends = [this, real, slow] {
      if (!real.done() || (slow && lanes_.in_flight[lanes_.quick] > 0)) return false;
      --lanes_.in_flight[letter_];
      lanes_.completed += letter_;
      return true;
    };
    return queue_.submit(std::make_unique<LateOperation>(slow ? kSlowLooks : 1, ends));
  }

  comm::Queue& queue_;
  char letter_;
  Lanes& lanes_;
};

/// A small model whose shards are gathered and summed by groups that each rank sees late in its own way.
class GathersLaneTest : public testing::TestWithParam<bool> {
 protected:
  GathersLaneTest()
      : parameters_(*model_, at::empty({0}, at::kDouble), FlatParameters::Values::elsewhere),
        layers_(*model_, parameters_, gather_group_,
                [this](const models::Parameter* parameter) { sums_->passed(parameter); }),
        sums_(std::make_unique<ShardedSums>(
            parameters_, sum_group_, job_.queue(),
            ShardedSums::Config{.micro_batches = kPieces, .buckets = layers_.shared_out()})) {}

  void step() {
    const Range all{0, std::ssize(model_->layers())};
    const SegmentWalk walk(*model_, all, each_layer(all, 1), &layers_);
    const auto mine = part_of(kPieces, job_.rank(), job_.data().size());
    sums_->begin_step(static_cast<int>(mine.size()));
    for (auto k = mine.begin; k < mine.end; ++k) {
      const auto part = part_of(kSamples, k, kPieces);
      forward_and_back(*model_, walk, batch_.inputs.narrow(0, part.begin, part.size()),
                       batch_.targets.narrow(0, part.begin, part.size()));
    }
    const int ranks = job_.data().size();
    for (auto k = mine.size(); k < (kPieces + ranks - 1) / ranks; ++k) {
      walk.idle_forward();
      walk.idle_back();
    }
    sums_->finish();
  }

  /// Whether the last step's operations completed in the same order on all ranks.
  bool all_completed_alike() {
    std::vector<std::int64_t> hashes(static_cast<std::size_t>(job_.world().size()));
    std::array<std::int64_t, 1> mine = {
        static_cast<std::int64_t>(std::hash<std::string>()(lanes_.completed))};
    job_.world()
        .all_gather(comm::Buffer::of(std::span<std::int64_t>(mine)), comm::Buffer::of(std::span(hashes)))
        .wait();
    return std::ranges::count(hashes, hashes.front()) == std::ssize(hashes);
  }

  JobOfTest job_{topology::Axis::data, comm::Drive::inline_, GetParam()};
  std::unique_ptr<models::Model> model_ = small_model();
  SmallBatch batch_ = small_batch(kSamples);
  Lanes lanes_;
  LateGroup sum_group_{job_.data(), job_.queue(), 's', lanes_};
  LateGroup gather_group_{job_.data_gathers(), job_.queue(), 'g', lanes_};
  FlatParameters parameters_;
  LayerShards layers_;
  std::unique_ptr<ShardedSums> sums_;
};

TEST_P(GathersLaneTest, GradientsAreRightInWhateverOrderTheyCompleteOnARank) {
  const auto expected = plain_gradient(kSamples);
  std::mt19937 chance(static_cast<unsigned>(11 + job_.rank()));
  constexpr int kTrials = 8;
  for (int trial = 0; trial < kTrials; ++trial) {
    // In the first two the lanes overtake each other on every second rank; then as it comes.
    const bool sums_are_quick = trial < 2 ? (trial + job_.rank()) % 2 == 0 : chance() % 2 == 0;
    lanes_.quick = sums_are_quick ? 's' : 'g';
    lanes_.completed.clear();
    step();
    expect_shards_of(expected, *sums_, job_.data());
    for (const auto* parameter : model_->parameters())
      EXPECT_EQ(parameter->value.storage().nbytes(), 0U) << parameter->name;
    if (trial < 2 && job_.world().size() > 1) {
      EXPECT_FALSE(all_completed_alike()) << lanes_.completed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lanes, GathersLaneTest, testing::Values(true, false),
                         [](const auto& lanes) { return lanes.param ? "Apart" : "OneForBoth"; });

}  // namespace
}  // namespace dtrain::parallel
