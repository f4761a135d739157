#include "models/losses.hpp"

#include "core/error.hpp"
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
