#include "parallel/gradients/gradient_buckets.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/pipeline/segments.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kSamples = 13;
constexpr int kPieces = 5;

/// The summed gradient of the whole batch, by plain autograd, laid out flat.
at::Tensor reference(const std::string& hidden = "16,8") {
  auto model = small_model(hidden);
  FlatParameters parameters(*model, at::kDouble);
  const auto batch = small_batch(kSamples);
  forward_and_back(*model, whole_walk(*model), batch.inputs, batch.targets);
  auto flat = at::zeros_like(parameters.values());
  for (const auto& entry : parameters.entries()) {
    FlatParameters::view(flat, entry).copy_(entry.parameter->value.grad());
  }
  return flat;
}

/// One step on this rank's share of the pieces; a rank without pieces takes part with zeros.
void run_step(models::Model& model, GradientBuckets& buckets, Range pieces) {
  const auto walk = whole_walk(model);
  const auto batch = small_batch(kSamples);
  buckets.begin_step(static_cast<int>(pieces.size()));
  for (auto k = pieces.begin; k < pieces.end; ++k) {
    const auto part = part_of(kSamples, k, kPieces);
    forward_and_back(model, walk, batch.inputs.narrow(0, part.begin, part.size()),
                     batch.targets.narrow(0, part.begin, part.size()));
  }
  buckets.finish();
}

double gap(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(GradientBucketsTest, SumsOverPiecesAndRanksEqualTheWholeBatchForEveryBucketSize) {
  JobOfTest job;
  const auto expected = reference();
  for (const std::int64_t bucket_bytes : {0, 1, 1600}) {
    auto model = small_model();
    FlatParameters parameters(*model, at::kDouble);
    GradientBuckets buckets(parameters, job.data(), job.queue(), {.bucket_bytes = bucket_bytes});
    for (int step = 0; step < 3; ++step) {  // a second step must not see the first one's sums
      run_step(*model, buckets, part_of(kPieces, job.rank(), job.data().size()));
      EXPECT_LT(gap(buckets.gradients(), expected), 1e-12) << bucket_bytes << " bytes, step " << step;
    }
    const std::size_t expected_buckets = bucket_bytes == 0   ? 1
                                         : bucket_bytes == 1 ? parameters.entries().size()
                                                             : 3;
    EXPECT_EQ(buckets.bucket_count(), expected_buckets);
  }
}

TEST(GradientBucketsTest, ARankWithoutPiecesStillTakesPart) {
  JobOfTest job;
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  GradientBuckets buckets(parameters, job.data(), job.queue(), {.bucket_bytes = 1});
  const bool last = job.rank() == job.data().size() - 1;
  run_step(*model, buckets, last ? Range{0, kPieces} : Range{0, 0});
  EXPECT_LT(gap(buckets.gradients(), reference()), 1e-12);
}

TEST(GradientBucketsTest, AWeightWhoseGradientIsHeldBackUntilTheLastPiece) {
  JobOfTest job;
  const std::string large = "800,700";  // more elements than a step's rows need
  const auto expected = reference(large);
  auto model = small_model(large);
  FlatParameters parameters(*model, at::kDouble);
  GradientBuckets buckets(parameters, job.data(), job.queue(), {});
  for (int step = 0; step < 2; ++step) {
    run_step(*model, buckets, part_of(kPieces, job.rank(), job.data().size()));
    EXPECT_LT(gap(buckets.gradients(), expected), 1e-12) << "step " << step;
  }
}

TEST(GradientBucketsTest, AGradientThatStandsForAllMicroBatchesCompletesItsBucket) {
  JobOfTest job;
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  GradientBuckets buckets(parameters, job.data(), job.queue(), {.bucket_bytes = 1});
  models::Parameter& weight = *parameters.entries().front().parameter;
  for (const int passed : {2, 1}) {
    buckets.begin_step(2);
    ASSERT_NE(weight.step_memory(), nullptr);
    const at::Tensor none = at::empty({0});
    for (int m = 0; m < passed; ++m) weight.step_memory()->add(none, none);
    if (passed == 2) {
      (weight.value * 3).sum().backward();
      buckets.finish();
      const auto found = FlatParameters::view(buckets.gradients(), parameters.entries().front());
      EXPECT_EQ(found.min().item<double>(), 3.0 * job.data().size());
      EXPECT_EQ(weight.step_memory(), nullptr) << "the values are about to change";
    } else {
      EXPECT_THROW(buckets.finish(), Error) << "one micro-batch is still held back";
    }
  }
}

TEST(GradientBucketsTest, ABucketWaitsForEachGradientOfAParameterThatIsMetAgain) {
  JobOfTest job;
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  models::Parameter& weight = *parameters.entries().front().parameter;
  GradientBuckets buckets(parameters, job.data(), job.queue(), {.bucket_bytes = 1}, {.met_again = {&weight}});
  const auto pass = [&](double factor) { (weight.value * factor).sum().backward(); };
  buckets.begin_step(2);
  EXPECT_EQ(weight.step_memory(), nullptr) << "a gradient held back would be of one use only";
  for (const double factor : {1.0, 2.0, 3.0, 4.0}) pass(factor);
  buckets.finish();
  const auto found = FlatParameters::view(buckets.gradients(), parameters.entries().front());
  EXPECT_EQ(found.min().item<double>(), 10.0 * job.data().size());
  EXPECT_THROW(pass(5), Error) << "two gradients in each of two micro-batches are all";
}

TEST(GradientBucketsTest, TheGradientOfAParameterLeftOutIsNotTheirs) {
  JobOfTest job;
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  models::Parameter& weight = *parameters.entries().back().parameter;
  const models::GradientPlace elsewhere(weight);
  EXPECT_THROW(GradientBuckets(parameters, job.data(), job.queue(), {}), Error) << "it is collected already";
  GradientBuckets buckets(parameters, job.data(), job.queue(), {}, {.left_out = &weight});
  run_step(*model, buckets, part_of(kPieces, job.rank(), job.data().size()));
  const auto& entry = parameters.entries().back();
  const auto theirs = at::TensorOptions().dtype(at::kDouble);
  EXPECT_LT(gap(buckets.gradients().narrow(0, 0, entry.offset), reference().narrow(0, 0, entry.offset)),
            1e-12);
  EXPECT_TRUE(
      at::equal(FlatParameters::view(buckets.gradients(), entry), at::zeros(weight.value.sizes(), theirs)));
  EXPECT_TRUE(weight.value.grad().defined()) << "plain autograd has it";
}

using Update = BucketConfig::Update;

TEST(GradientBucketsTest, OwnPartsCoverTheGradientOnceAndHoldItsSums) {
  JobOfTest job;
  const auto expected = reference();
  for (const auto update : {Update::everything, Update::parts}) {
    for (const std::int64_t bucket_bytes : {0, 1, 1600}) {
      auto model = small_model();
      FlatParameters parameters(*model, at::kDouble);
      GradientBuckets buckets(parameters, job.data(), job.queue(),
                              {.bucket_bytes = bucket_bytes, .update = update});
      run_step(*model, buckets, part_of(kPieces, job.rank(), job.data().size()));
      std::vector<double> covered(static_cast<std::size_t>(parameters.size()), 0.0);
      for (const auto& mine : buckets.own_parts()) {
        if (mine.size() == 0) continue;
        for (auto i = mine.begin; i < mine.end; ++i) covered[static_cast<std::size_t>(i)] += 1.0;
        const auto sums = buckets.gradients().narrow(0, mine.begin, mine.size());
        EXPECT_LT(gap(sums, expected.narrow(0, mine.begin, mine.size())), 1e-12);
      }
      job.data().all_reduce(comm::Buffer::of(std::span<double>(covered)), comm::ReduceOp::sum).wait();
      EXPECT_EQ(covered, std::vector<double>(covered.size(), 1.0));
      EXPECT_EQ(buckets.updates_parts(), update == Update::parts && job.data().size() > 1);
    }
  }
}

TEST(GradientBucketsTest, RanksWithDifferentModelsAreRefusedOnEveryRank) {
  JobOfTest job;
  if (job.data().size() == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  const models::ModelOptions options = {{"hidden", job.rank() == 0 ? "16,8" : "8,16"}};
  auto model = models::find_model("mlp").make(
      {.task = "table_classification", .sample_shape = {12}, .classes = 3}, options);
  model->initialise(7);
  FlatParameters parameters(*model, at::kFloat);
  EXPECT_THROW(GradientBuckets(parameters, job.data(), job.queue(), {}), Error);
}

}  // namespace
}  // namespace dtrain::parallel
