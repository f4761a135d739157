#include "parallel/gradients/reproducible_sums.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "core/error.hpp"
#include "parallel/gradients/gradient_buckets.hpp"
#include "parallel/gradients/reproducible_totals.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kSamples = 13;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

comm::Buffer buffer_of(const at::Tensor& values) {
  return comm::Buffer::of(std::span(values.data_ptr<float>(), static_cast<std::size_t>(values.numel())));
}

/// The first rank's values.
at::Tensor of_first_rank(comm::Group& group, const at::Tensor& mine) {
  auto values = mine.clone();
  group.broadcast(buffer_of(values), 0).wait();
  return values;
}

/// One step on the pieces [begin, end) of `pieces`.
void run_step(models::Model& model, GradientSums& sums, Range mine, int pieces) {
  const auto walk = whole_walk(model);
  const auto batch = small_batch(kSamples);
  sums.begin_step(static_cast<int>(mine.size()));
  for (auto k = mine.begin; k < mine.end; ++k) {
    const auto part = part_of(kSamples, k, pieces);
    if (part.size() == 0) continue;
    forward_and_back(model, walk, batch.inputs.narrow(0, part.begin, part.size()).to(at::kFloat),
                     batch.targets.narrow(0, part.begin, part.size()));
    sums.taken_back(static_cast<int>(k));
  }
  sums.finish();
}

/// The sum along the tree by its definition, from gradients by plain autograd.
at::Tensor by_definition(Range pieces, std::int64_t width, int all) {
  if (width == 1) {
    auto model = small_model();
    FlatParameters parameters(*model, at::kFloat);
    auto flat = at::zeros_like(parameters.values());
    const auto part = part_of(kSamples, pieces.begin, all);
    if (part.size() == 0) return flat;
    const auto batch = small_batch(kSamples);
    forward_and_back(*model, whole_walk(*model),
                     batch.inputs.narrow(0, part.begin, part.size()).to(at::kFloat),
                     batch.targets.narrow(0, part.begin, part.size()));
    for (const auto& entry : parameters.entries()) {
      FlatParameters::view(flat, entry).copy_(entry.parameter->value.grad());
    }
    return flat;
  }
  const auto middle = pieces.begin + width / 2;
  const auto left = by_definition({pieces.begin, std::min(middle, pieces.end)}, width / 2, all);
  if (middle >= pieces.end) return left;
  return left + by_definition({middle, pieces.end}, width / 2, all);
}

TEST(ReproducibleSumsTest, GradientsHeldAreThoseOfTheRankThatBeginsAtTheWorstPlace) {
  EXPECT_EQ(ReproducibleSums::gradients_held(4, 1), 3) << "pieces 0-1, 2 and 3";
  EXPECT_EQ(ReproducibleSums::gradients_held(8, 2), 3 + 1) << "and the total";
  EXPECT_EQ(ReproducibleSums::gradients_held(6, 2), 3 + 1) << "the second rank's 3, 4 and 5";
  EXPECT_EQ(ReproducibleSums::exchanged_elements(6, 1, 1000), 0);
  EXPECT_EQ(ReproducibleSums::exchanged_elements(4, 2, 1024), 2 * 2 * 1 * 512);
}

TEST(PieceTreeTest, CoversAreTheFewestAlignedPowersOfTwo) {
  using Nodes = std::vector<PieceTree::Node>;
  EXPECT_EQ(PieceTree::cover({0, 8}), (Nodes{{3, 0}}));
  EXPECT_EQ(PieceTree::cover({2, 5}), (Nodes{{1, 1}, {0, 4}}));
  EXPECT_EQ(PieceTree::cover({5, 8}), (Nodes{{0, 5}, {1, 3}}));
  EXPECT_EQ(PieceTree::cover({3, 3}), Nodes{});
}

TEST(PieceTreeTest, TheOrderOfAddingDoesNotMatterAndTheTreeIsTheBinaryOne) {
  const std::vector<float> pieces = {1e8F, 1.0F, -1e8F, 3.0F, 1e-3F, 7.0F, 2.5F};
  const float expected = ((1e8F + 1.0F) + (-1e8F + 3.0F)) + ((1e-3F + 7.0F) + 2.5F);
  for (const auto& order :
       std::vector<std::vector<int>>{{0, 1, 2, 3, 4, 5, 6}, {6, 5, 4, 3, 2, 1, 0}, {3, 0, 6, 1, 5, 2, 4}}) {
    PieceTree tree;
    for (const int k : order) tree.add({.index = k}, at::full({1}, pieces[static_cast<std::size_t>(k)]));
    const auto total = tree.take_total().item<float>();
    EXPECT_EQ(std::bit_cast<std::uint32_t>(total), std::bit_cast<std::uint32_t>(expected));
  }
  PieceTree tree;
  tree.add({.index = 4}, at::ones({1}));
  EXPECT_THROW(tree.add({.index = 4}, at::ones({1})), Error);
}

TEST(ReproducibleSumsTest, AreTheBitsOfTheTreeOnAnyNumberOfRanks) {
  JobOfTest job;
  for (const int pieces : {1, 5, 8, 16}) {  // of 16 some are empty
    std::int64_t width = 1;
    while (width < pieces) width *= 2;
    const auto expected = by_definition({0, pieces}, width, pieces);
    auto model = small_model();
    FlatParameters parameters(*model, at::kFloat);
    ReproducibleSums sums(parameters, *model, job.data(), pieces, false);
    const auto mine = part_of(pieces, job.rank(), job.data().size());
    for (int step = 0; step < 3; ++step) {  // the second one finds the first one's memory
      run_step(*model, sums, mine, pieces);
      EXPECT_TRUE(same_bits(sums.gradients(), expected)) << pieces << " pieces, step " << step;
    }
    EXPECT_TRUE(same_bits(of_first_rank(job.data(), sums.gradients()), sums.gradients()));
  }
}

TEST(ReproducibleSumsTest, AreTheSameBitsWhateverMicroBatchesTheRanksOwn) {
  JobOfTest job;
  constexpr int kPieces = 16;
  const auto expected = by_definition({0, kPieces}, kPieces, kPieces);
  auto model = small_model();
  FlatParameters parameters(*model, at::kFloat);
  ReproducibleSums sums(parameters, *model, job.data(), kPieces, false);
  const auto ranks = static_cast<std::size_t>(job.data().size());
  for (const double slowness : {1.0, 4.0, 1.5, 9.0, 1.0}) {
    std::vector<double> seconds(ranks, 1.0);
    seconds.back() = slowness;
    const auto owned = ownership_by_speed(kPieces, seconds);
    sums.own(owned);
    run_step(*model, sums, owned[static_cast<std::size_t>(job.rank())], kPieces);
    EXPECT_TRUE(same_bits(sums.gradients(), expected)) << slowness;
  }
}

TEST(ReproducibleSumsTest, ALargeModelComesTogetherInSeveralWindows) {
  JobOfTest job;
  constexpr int kPieces = 5;
  const auto step_of = [&](comm::Group& group, Range mine) {
    auto model = small_model("700,700");  // more elements than two windows have
    FlatParameters parameters(*model, at::kFloat);
    ReproducibleSums sums(parameters, *model, group, kPieces, false);
    run_step(*model, sums, mine, kPieces);
    return sums.gradients().clone();
  };
  const auto many = step_of(job.data(), part_of(kPieces, job.rank(), job.data().size()));
  const auto one = step_of(job.pipe(), {0, kPieces});  // a group of this rank alone
  ASSERT_EQ(job.pipe().size(), 1);
  EXPECT_TRUE(same_bits(many, one));
}

TEST(ReproducibleSumsTest, WhoUpdatesPartsUpdatesEachOnce) {
  JobOfTest job;
  auto model = small_model();
  FlatParameters parameters(*model, at::kFloat);
  ReproducibleSums sums(parameters, *model, job.data(), 8, true);
  EXPECT_EQ(sums.updates_parts(), job.data().size() > 1);
  auto covered = at::zeros({parameters.size()});
  for (const auto& part : sums.update_parts()) covered.narrow(0, part.begin, part.size()).add_(1);
  job.data().all_reduce(buffer_of(covered), comm::ReduceOp::sum).wait();
  EXPECT_TRUE(at::all(covered == 1).item<bool>());
}

TEST(ReproducibleSumsTest, RefuseAMicroBatchOfAnotherRank) {
  JobOfTest job;
  auto model = small_model();
  FlatParameters parameters(*model, at::kFloat);
  ReproducibleSums sums(parameters, *model, job.data(), 8, false);
  sums.begin_step(1);
  EXPECT_THROW(sums.taken_back(8), Error);
}

TEST(ReproducibleTotalsTest, AreTheBitsOfOneRank) {
  JobOfTest job;
  constexpr int kPieces = 8;
  const auto totals_of = [&](comm::Group& group, Range mine) {
    auto model = small_model("700,700");
    FlatParameters parameters(*model, at::kFloat);
    ReproducibleTotals totals(*model, parameters, group, group, kPieces, true);
    totals.begin_step();
    for (auto k = mine.begin; k < mine.end; ++k) {
      const auto x = static_cast<double>(k);
      totals.add_micro_batch(static_cast<int>(k), std::sin(x) * std::pow(10.0, x), 1.0 / (x + 3));
    }
    totals.add_gradients(at::sin(at::arange(parameters.size(), at::kFloat)));
    StepTotals total;
    totals.complete(total);
    return total;
  };
  const auto many = totals_of(job.data(), part_of(kPieces, job.rank(), job.data().size()));
  const auto one = totals_of(job.pipe(), {0, kPieces});
  EXPECT_EQ(many.loss, one.loss);
  EXPECT_EQ(many.weight, one.weight);
  EXPECT_EQ(many.gradient_squares, one.gradient_squares);
  auto model = small_model("700,700");
  const FlatParameters parameters(*model, at::kFloat);
  double squares = 0;
  for (const auto& entry : parameters.entries()) {
    for (auto i = entry.offset; i < entry.offset + entry.count; ++i)
      squares += std::pow(std::sin(static_cast<float>(i)), 2);
  }
  EXPECT_NEAR(one.gradient_squares / squares, 1.0, 1e-6);
}

}  // namespace
}  // namespace dtrain::parallel
