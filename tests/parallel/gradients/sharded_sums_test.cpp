#include "parallel/gradients/sharded_sums.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "comm/passing_group.hpp"
#include "core/error.hpp"
#include "parallel/gradients/plain_gradient.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/late_operation.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kSamples = 13;
constexpr int kPieces = 5;

/// One step on these pieces of `all`, without the empty ones.
void run_pieces(models::Model& model, ShardedSums& sums, Range pieces, int all) {
  const auto walk = whole_walk(model);
  const auto batch = small_batch(kSamples);
  std::vector<Range> parts;
  for (auto k = pieces.begin; k < pieces.end; ++k) {
    const auto part = part_of(kSamples, k, all);
    if (part.size() > 0) parts.push_back(part);
  }
  sums.begin_step(static_cast<int>(parts.size()));
  for (const Range& part : parts) {
    forward_and_back(model, walk, batch.inputs.narrow(0, part.begin, part.size()),
                     batch.targets.narrow(0, part.begin, part.size()));
  }
  sums.finish();
}

TEST(ShardedSumsTest, TheShardsOfAllRanksAreTheGradientOfTheWholeBatch) {
  JobOfTest job;
  const auto expected = plain_gradient(kSamples);
  const int ranks = job.data().size();
  for (const std::int64_t bucket_bytes : {0, 1, 1600}) {
    auto model = small_model();
    FlatParameters parameters(*model, at::kDouble);
    ShardedSums sums(parameters, job.data(), job.queue(),
                     {.micro_batches = kPieces, .bucket_bytes = bucket_bytes});
    for (int step = 0; step < 3; ++step) {  // a second step must not see the first one's sums
      run_pieces(*model, sums, part_of(kPieces, job.rank(), ranks), kPieces);
      expect_shards_of(expected, sums, job.data());
    }
    EXPECT_EQ(sums.updates_parts(), ranks > 1);
  }
}

TEST(ShardedSumsTest, MicroBatchesMayBeDealtUnevenlyAndBeEmpty) {
  JobOfTest job;
  const auto expected = plain_gradient(kSamples);
  const int ranks = job.data().size();
  std::mt19937 chance(11);  // the same on all ranks
  for (int trial = 0; trial < 12; ++trial) {
    const int pieces = std::uniform_int_distribution(ranks, 24)(chance);  // of 13 samples some are empty
    const std::int64_t bucket_bytes = std::uniform_int_distribution(1, 4000)(chance);
    auto model = small_model();
    FlatParameters parameters(*model, at::kDouble);
    ShardedSums sums(parameters, job.data(), job.queue(),
                     {.micro_batches = pieces, .bucket_bytes = bucket_bytes});
    for (int step = 0; step < 2; ++step) {
      std::vector<int> cuts = {0, pieces};
      for (int r = 1; r < ranks; ++r) cuts.push_back(std::uniform_int_distribution(0, pieces)(chance));
      std::ranges::sort(cuts);
      Ownership owned;
      for (std::size_t r = 0; r + 1 < cuts.size(); ++r) owned.push_back({cuts[r], cuts[r + 1]});
      sums.own(owned);
      run_pieces(*model, sums, owned[static_cast<std::size_t>(job.rank())], pieces);
      SCOPED_TRACE(testing::Message() << "trial " << trial << ", step " << step);
      expect_shards_of(expected, sums, job.data());
    }
  }
}

/// The elements of a parameter's sum that this rank holds.
std::vector<double> held_of(const ShardedSums& sums, const FlatParameters::Entry& entry) {
  std::vector<double> held;
  std::int64_t place = 0;
  for (const Range& part : sums.update_parts()) {
    for (auto i = part.begin; i < part.end; ++i, ++place) {
      if (i >= entry.offset && i < entry.offset + entry.count)
        held.push_back(sums.gradients()[place].item<double>());
    }
  }
  return held;
}

TEST(ShardedSumsTest, GradientsMayComeInAnyOrderAndOfLaterMicroBatchesBeforeTheirTurn) {
  JobOfTest job;
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  const int ranks = job.data().size();
  ShardedSums sums(parameters, job.data(), job.queue(), {.micro_batches = 3 * ranks, .bucket_bytes = 1});
  const auto& entries = parameters.entries();
  for (int step = 0; step < 2; ++step) {
    sums.begin_step(3);
    // As with several stages on a rank: all micro-batches of one parameter, the last one's first.
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
      for (const double factor : {1.0, 2.0, 3.0}) (entry->parameter->value * factor).sum().backward();
    }
    EXPECT_THROW((entries.front().parameter->value * 4).sum().backward(), Error) << "three are all";
    sums.finish();
    for (const auto& entry : entries) {
      for (const double value : held_of(sums, entry)) EXPECT_EQ(value, 6.0 * ranks);
    }
  }
}

TEST(ShardedSumsTest, AParameterThatIsMetAgainHasSeveralGradientsInAMicroBatch) {
  JobOfTest job;
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  const auto& entry = parameters.entries().front();
  models::Parameter& weight = *entry.parameter;
  const int ranks = job.data().size();
  ShardedSums sums(parameters, job.data(), job.queue(),
                   {.micro_batches = 2 * ranks, .bucket_bytes = 1, .met_again = {&weight}});
  sums.begin_step(2);
  for (const double factor : {1.0, 2.0, 3.0, 4.0}) (weight.value * factor).sum().backward();
  sums.finish();
  for (const double value : held_of(sums, entry)) EXPECT_EQ(value, 10.0 * ranks);
}

TEST(ShardedSumsTest, ZerosOfOneUseMayComeBeforeTheLastGradientOfAnother) {
  JobOfTest job;
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  const auto& entry = parameters.entries().front();
  models::Parameter& weight = *entry.parameter;
  const int ranks = job.data().size();
  ShardedSums sums(parameters, job.data(), job.queue(),
                   {.micro_batches = 3 * ranks, .bucket_bytes = 1, .met_again = {&weight}});
  for (int step = 0; step < 2; ++step) {
    const int own = job.rank() % 2 == 0 ? 1 : 3;  // others have two more
    sums.begin_step(own);
    // As with interleaved stages: all micro-batches pass the borrower's stage before the owner's.
    for (const double factor : {1.0, 10.0}) {
      for (int m = 0; m < 3; ++m) {
        if (m < own) (weight.value * (factor * (m + 1))).sum().backward();
        sums.passed(&weight);
      }
    }
    EXPECT_THROW(weight.value.sum().backward(), Error) << "these are all";
    sums.finish();
    double expected = 0;
    for (int rank = 0; rank < ranks; ++rank) expected += rank % 2 == 0 ? 11 : 66;
    for (const double value : held_of(sums, entry)) EXPECT_EQ(value, expected);
  }
}

TEST(ShardedSumsTest, AShareOfAnotherRankCountsOnce) {
  JobOfTest job;
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  const auto& entry = parameters.entries().front();  // its bucket is the first to leave
  models::Parameter& weight = *entry.parameter;
  const int ranks = job.data().size();
  ShardedSums sums(parameters, job.data(), job.queue(), {.micro_batches = 2 * ranks, .bucket_bytes = 1});
  sums.expect_share(&weight);
  for (const int passed : {2, 1, 0}) {  // a rank may have fewer micro-batches
    sums.begin_step(passed);
    for (int m = 0; m < passed; ++m) (weight.value * 3).sum().backward();
    sums.finish([&] { sums.add_share(&weight, at::full(weight.value.sizes(), 5.0, at::kDouble)); });
    for (const double value : held_of(sums, entry)) EXPECT_EQ(value, (3.0 * passed + 5.0) * ranks);
  }
}

TEST(ShardedSumsTest, RanksWithDifferentModelsOrMicroBatchesAreRefused) {
  JobOfTest job;
  if (job.data().size() == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  auto model = small_model(job.rank() == 0 ? "16,8" : "8,16");
  FlatParameters parameters(*model, at::kFloat);
  EXPECT_THROW(ShardedSums(parameters, job.data(), job.queue(), {}), Error);
  auto same = small_model();
  FlatParameters flat(*same, at::kFloat);
  EXPECT_THROW(ShardedSums(flat, job.data(), job.queue(), {.micro_batches = 4 + job.rank() % 2}), Error);
}

/// The first of two ranks, without the other one: writes down when sums leave.
class GroupOnPaper final : public comm::PassingGroup {
 public:
  GroupOnPaper(comm::Group& group, comm::Queue& queue, int looks)
      : PassingGroup(group), queue_(queue), looks_(looks) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  comm::Handle all_reduce(comm::Buffer, comm::ReduceOp, comm::Algorithm) override { return {}; }
  comm::Handle reduce_scatter(comm::Buffer input, comm::Buffer, comm::ReduceOp) override {
    happened.push_back(fmt::format("{} elements leave", input.count));
    return queue_.submit(std::make_unique<LateOperation>(looks_));
  }

  std::vector<std::string> happened;

 private:
  comm::Queue& queue_;
  int looks_;
};

/// What happens in a step whose gradients come in this order in each micro-batch.
std::vector<std::string> order_of_sums(JobOfTest& job, const std::vector<std::size_t>& order, int looks) {
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  GroupOnPaper group(job.data(), job.queue(), looks);
  ShardedSums sums(parameters, group, job.queue(), {.micro_batches = 4, .bucket_bytes = 1});
  sums.begin_step(2);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    for (const auto entry : order) {
      const auto& parameter = *parameters.entries()[entry].parameter;
      group.happened.push_back("gradient of " + parameter.name);
      parameter.value.sum().backward();
    }
  }
  sums.finish();
  return group.happened;
}

TEST(ShardedSumsTest, SumsLeaveBetweenTheSameGradientsHoweverLateOthersArrive) {
  JobOfTest job;
  constexpr int kOnlyWhenAwaited = 1000;
  auto model = small_model();
  std::vector<std::size_t> order(FlatParameters(*model, at::kDouble).entries().size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 chance(3);
  for (int trial = 0; trial < 20; ++trial) {  // interleaved stages run backward in other orders than one
    EXPECT_EQ(order_of_sums(job, order, 1), order_of_sums(job, order, kOnlyWhenAwaited)) << trial;
    std::ranges::shuffle(order, chance);
  }
}

}  // namespace
}  // namespace dtrain::parallel
