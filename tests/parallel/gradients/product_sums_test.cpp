#include "parallel/gradients/product_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "parallel/data_types.hpp"
#include "parallel/gradients/plain_gradient.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/pipeline/segments.hpp"
#include "parallel/small_model.hpp"
#include "parallel/step/ownership.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kSamples = 13;
constexpr int kPieces = 5;

class ProductSumsTest : public testing::Test {
 protected:
  ProductSumsTest()
      : sums_(ProductSums::make(parameters_, trained_products(*model_), job_.data(),
                                {.samples = kSamples, .micro_batches = kPieces}, job_.sink(), true)) {}

  /// A step on this rank's pieces of the first `samples` samples; a piece without samples does not run.
  void run_step(Range pieces, std::int64_t samples = kSamples) {
    const auto walk = whole_walk(*model_);
    const auto batch = small_batch(samples);
    int own = 0;
    for (auto k = pieces.begin; k < pieces.end; ++k) own += part_of(samples, k, kPieces).size() > 0 ? 1 : 0;
    sums_->begin_step(own);
    for (auto k = pieces.begin; k < pieces.end; ++k) {
      const auto part = part_of(samples, k, kPieces);
      if (part.size() == 0) continue;
      forward_and_back(*model_, walk, batch.inputs.narrow(0, part.begin, part.size()),
                       batch.targets.narrow(0, part.begin, part.size()));
      sums_->taken_back(static_cast<int>(k));
    }
    sums_->finish();
    job_.data().barrier().wait();  // as after an update: no rank reads factors any more
  }

  Range even_pieces() { return part_of(kPieces, job_.rank(), job_.data().size()); }

  /// Of the parts that this rank updates.
  double gap_to(const at::Tensor& expected) const {
    double gap = 0;
    for (const Range& part : sums_->update_parts()) {
      gap = std::max(gap, largest_gap(sums_->gradients().narrow(0, part.begin, part.size()),
                                      expected.narrow(0, part.begin, part.size())));
    }
    return gap;
  }

  JobOfTest job_;
  std::unique_ptr<models::Model> model_ = small_model();
  FlatParameters parameters_{*model_, at::kDouble};
  std::unique_ptr<ProductSums> sums_;
};

TEST_F(ProductSumsTest, AreMadeOnlyIfAllRanksWantThem) {
  ASSERT_NE(sums_, nullptr);
  EXPECT_EQ(sums_->updates_parts(), job_.data().size() > 1);
  sums_.reset();
  const bool wanted = job_.rank() != 0;
  EXPECT_EQ(ProductSums::make(parameters_, trained_products(*model_), job_.data(),
                              {.samples = kSamples, .micro_batches = kPieces}, job_.sink(), wanted),
            nullptr);
}

TEST_F(ProductSumsTest, SumsOverPiecesAndRanksEqualTheWholeBatch) {
  for (const std::int64_t samples : {kSamples, kSamples, std::int64_t{11}, std::int64_t{3}, kSamples}) {
    run_step(even_pieces(), samples);
    EXPECT_LT(gap_to(plain_gradient(samples)), 1e-12) << samples;
  }
}

TEST_F(ProductSumsTest, TheBitsDoNotDependOnWhichRankComputesAPiece) {
  run_step(even_pieces());
  const auto expected = sums_->gradients().clone();
  for (const int all_on : {0, job_.data().size() - 1}) {
    run_step(job_.rank() == all_on ? Range{0, kPieces} : Range{0, 0});
    EXPECT_EQ(gap_to(expected), 0) << "all pieces on rank " << all_on;
  }
}

TEST_F(ProductSumsTest, EachElementIsUpdatedByOneRank) {
  auto updates = at::zeros_like(parameters_.values());
  for (const Range& part : sums_->update_parts()) updates.narrow(0, part.begin, part.size()).add_(1);
  job_.data().all_reduce(buffer_of(updates), comm::ReduceOp::sum).wait();
  EXPECT_TRUE(updates.eq(1).all().item<bool>());
  const auto shared = sums_->shared_out();
  ASSERT_EQ(shared.size(), sums_->update_parts().size());
  EXPECT_EQ(shared.front().begin, 0);
  EXPECT_EQ(shared.back().end, parameters_.size());
}

TEST_F(ProductSumsTest, ParametersGetNoGradientsOfTheirOwn) {
  run_step(even_pieces());
  for (const auto* parameter : model_->parameters()) EXPECT_FALSE(parameter->value.grad().defined());
  sums_.reset();
  const auto batch = small_batch(2);
  forward_and_back(*model_, whole_walk(*model_), batch.inputs, batch.targets);
  for (const auto* parameter : model_->parameters()) EXPECT_TRUE(parameter->value.grad().defined());
}

TEST_F(ProductSumsTest, APieceThatLeavesNoFactorsOrDoesNotComeIsAnError) {
  sums_->begin_step(1);
  EXPECT_THROW(sums_->taken_back(0), Error);
  EXPECT_THROW(sums_->finish(), Error);
}

TEST(TrainedProductsTest, AreThoseOfModelsOfWhichNothingElseIsTrained) {
  auto model = small_model();
  EXPECT_EQ(trained_products(*model).size(), 3U);
  auto& first = model->layers().at(1)->parameters();
  first.at(0).frozen = true;
  EXPECT_TRUE(trained_products(*model).empty()) << "a bias alone";
  first.at(1).frozen = true;
  EXPECT_EQ(trained_products(*model).size(), 2U);
  const auto cnn = models::find_model("cnn").make(
      {.task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 10}, {});
  EXPECT_TRUE(trained_products(*cnn).empty());
}

TEST(TrainedProductsTest, PayWhereAStepHasFewSamples) {
  auto model = small_model("250,100");
  const auto products = trained_products(*model);
  EXPECT_TRUE(ProductSums::pays(products, {.samples = 32, .micro_batches = 2}));
  EXPECT_FALSE(ProductSums::pays(products, {.samples = 256, .micro_batches = 2}));
  EXPECT_FALSE(ProductSums::pays({}, {.samples = 32, .micro_batches = 2}));
}

}  // namespace
}  // namespace dtrain::parallel
