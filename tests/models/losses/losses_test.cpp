#include "models/losses/losses.hpp"

#include <cmath>

#include "core/error.hpp"
#include "models/losses/regression_scores.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

TEST(LossesTest, PiecesAddUpToTheWhole) {
  const at::Tensor logits = at::randn({10, 4}, at::kDouble);
  const at::Tensor targets = at::randint(4, {10}, at::kLong);
  const LossSums whole = cross_entropy_sums(logits, targets);
  const LossSums first = cross_entropy_sums(logits.narrow(0, 0, 3), targets.narrow(0, 0, 3));
  const LossSums rest = cross_entropy_sums(logits.narrow(0, 3, 7), targets.narrow(0, 3, 7));
  EXPECT_NEAR(whole.loss.item<double>(), first.loss.item<double>() + rest.loss.item<double>(), 1e-12);
  EXPECT_EQ(whole.correct.item<std::int64_t>(), (first.correct + rest.correct).item<std::int64_t>());
  EXPECT_EQ(whole.weight, 10.0);
  const at::Tensor mean = at::cross_entropy_loss(logits, targets);
  EXPECT_NEAR(whole.loss.item<double>() / 10.0, mean.item<double>(), 1e-12);
}

TEST(LossesTest, CountsTheRightlyClassified) {
  const at::Tensor logits = at::tensor({3.0F, 1.0F, 0.0F, 5.0F, 1.0F, 0.0F}).view({3, 2});
  const LossSums sums = cross_entropy_sums(logits, at::tensor({0, 1, 1}, at::kLong));
  EXPECT_EQ(sums.correct.scalar_type(), at::kLong);
  EXPECT_EQ(sums.correct.item<std::int64_t>(), 2);
}

TEST(LossesTest, ClassWeightsWeighLossAndWeightButNotTheCountOfRightOnes) {
  const at::Tensor logits = at::randn({9, 3}, at::kDouble);
  const at::Tensor targets = at::tensor({0, 0, 0, 0, 0, 0, 1, 1, 2}, at::kLong);
  const at::Tensor weights = at::tensor({0.5, 1.5, 3.0}, at::kDouble);
  const LossSums sums = cross_entropy_sums(logits, targets, {.class_weights = weights});
  const at::Tensor mean = at::cross_entropy_loss(logits, targets, weights);  // PyTorch's weighted mean
  EXPECT_NEAR(sums.weight, 9.0, 1e-12);
  EXPECT_NEAR(sums.loss.item<double>() / sums.weight, mean.item<double>(), 1e-12);
  EXPECT_EQ(sums.counted, 9.0);
  EXPECT_EQ(sums.correct.item<std::int64_t>(),
            cross_entropy_sums(logits, targets).correct.item<std::int64_t>());
}

TEST(LossesTest, SmoothedTargetsAreTorchsAlsoWithClassWeightsAndInPieces) {
  const at::Tensor logits = at::randn({9, 3}, at::kDouble);
  const at::Tensor targets = at::tensor({0, 0, 0, 0, 0, 0, 1, 1, 2}, at::kLong);
  for (const at::Tensor& weights : {at::Tensor(), at::tensor({0.5, 1.5, 3.0}, at::kDouble)}) {
    const TrainingLoss how{.class_weights = weights, .label_smoothing = 0.2};
    const LossSums first = cross_entropy_sums(logits.narrow(0, 0, 4), targets.narrow(0, 0, 4), how);
    const LossSums rest = cross_entropy_sums(logits.narrow(0, 4, 5), targets.narrow(0, 4, 5), how);
    const at::Tensor mean = at::cross_entropy_loss(logits, targets, weights, at::Reduction::Mean, -100, 0.2);
    const double loss = first.loss.item<double>() + rest.loss.item<double>();
    EXPECT_NEAR(loss / (first.weight + rest.weight), mean.item<double>(), 1e-12);
  }
}

TEST(LossesTest, RSquaredIsOneForTruthAndZeroForTheMean) {
  const at::Tensor targets = 1000.0 + at::randn({50}, at::kDouble);
  const auto value = [&](const at::Tensor& outputs) {
    // In two pieces, as batches and ranks add up.
    auto sums = regression_score_sums(outputs.narrow(0, 0, 20), targets.narrow(0, 0, 20));
    const auto rest = regression_score_sums(outputs.narrow(0, 20, 30), targets.narrow(0, 20, 30));
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += rest[k];
    return r_squared(sums);
  };
  EXPECT_NEAR(value(targets.view({50, 1})), 1.0, 1e-12);
  EXPECT_NEAR(value(targets.mean().expand({50})), 0.0, 1e-9);
  const at::Tensor near = targets + 0.1 * at::randn({50}, at::kDouble);
  const at::Tensor expected =
      1.0 - (near - targets).square().sum() / (targets - targets.mean()).square().sum();
  EXPECT_NEAR(value(near), expected.item<double>(), 1e-9);
  EXPECT_TRUE(std::isnan(r_squared(regression_score_sums(at::randn({4}), at::ones({4})))));
}

TEST(LossesTest, RSquaredOfSeveralTargetsIsTheMeanOfTheirs) {
  const at::Tensor offsets = at::tensor({0.0, 1000.0, -5.0}, at::kDouble);  // one pool of all would be near 1
  const at::Tensor targets = at::randn({50, 3}, at::kDouble) + offsets;
  const at::Tensor outputs =
      targets + at::randn({50, 3}, at::kDouble) * at::tensor({0.1, 2.0, 0.5}, at::kDouble);
  auto sums = regression_score_sums(outputs.narrow(0, 0, 20), targets.narrow(0, 0, 20), 3);
  const auto rest = regression_score_sums(outputs.narrow(0, 20, 30), targets.narrow(0, 20, 30), 3);
  ASSERT_EQ(sums.size(), regression_columns(3).sums);
  for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += rest[k];
  const at::Tensor each =
      1.0 - (outputs - targets).square().sum(0) / (targets - targets.mean(0, true)).square().sum(0);
  EXPECT_NEAR(r_squared(sums), each.mean().item<double>(), 1e-9);
  EXPECT_LT(r_squared(sums), 0.5);
  const auto columns = regression_columns(3).columns;
  const auto scores = regression_scores(sums);
  ASSERT_EQ(columns.size(), scores.size());
  const at::Tensor error = outputs - targets;
  for (int target = 0; target < 3; ++target) {
    const auto rmse = static_cast<std::size_t>(1 + 2 * target);
    EXPECT_EQ(columns[rmse].target, target);
    EXPECT_EQ(columns[rmse + 1].name, "validation_mae_" + std::to_string(target));
    EXPECT_NEAR(scores[rmse], error.square().mean(0).sqrt()[target].item<double>(), 1e-9);
    EXPECT_NEAR(scores[rmse + 1], error.abs().mean(0)[target].item<double>(), 1e-9);
  }
  EXPECT_EQ(regression_columns(kMostScoredTargets + 1).columns.size(), 1U);
}

TEST(LossesTest, TheChosenLossMustBeOneThatTheModelTakes) {
  const DatasetFacts numbers{.task = "regression", .sample_shape = {3}};
  DatasetFacts mae = numbers;
  mae.loss = "mae";
  EXPECT_EQ(loss_of(numbers, "mlp", losses_of_task(numbers)), Loss::mse);
  EXPECT_EQ(loss_of(mae, "mlp", losses_of_task(mae)), Loss::mae);
  const DatasetFacts classes = images({1, 4, 4});
  EXPECT_EQ(loss_of(classes, "mlp", losses_of_task(classes)), Loss::cross_entropy);
  try {
    DatasetFacts given = images({3, 32, 32});
    given.loss = "mse";
    find_model("cnn").make(given, {});
    FAIL() << "cnn took mse";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("--loss mse"));
    EXPECT_THAT(error.what(), testing::HasSubstr("use cross_entropy"));
  }
}

TEST(LossesTest, RegressionSumsEachSamplesMean) {
  const at::Tensor outputs = at::randn({4, 3, 2});
  const at::Tensor targets = at::randn({4, 3, 2});
  EXPECT_NEAR(loss_sums(Loss::mse, outputs, targets).loss.item<double>(),
              4.0 * at::mse_loss(outputs, targets).item<double>(), 1e-5);
  EXPECT_NEAR(loss_sums(Loss::mae, outputs, targets).loss.item<double>(),
              4.0 * at::l1_loss(outputs, targets).item<double>(), 1e-5);
}

TEST(LossesTest, TargetsThatDoNotFitAreADataError) {
  const auto code = [](const at::Tensor& outputs, const at::Tensor& targets, Loss loss) {
    try {
      loss_sums(loss, outputs, targets);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::success;
  };
  EXPECT_EQ(code(at::randn({3, 2}), at::zeros({4}, at::kLong), Loss::cross_entropy), ExitCode::data);
  EXPECT_EQ(code(at::randn({3, 2}), at::zeros({3}), Loss::cross_entropy), ExitCode::data);
  EXPECT_EQ(code(at::randn({3, 2}), at::zeros({3}), Loss::mse), ExitCode::data);
}

}  // namespace
}  // namespace dtrain::models
