#include "models/networks/classifier.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/losses/token_loss.hpp"

namespace dtrain::models {
namespace {

Classifier classifier(std::int64_t classes) { return {"plain", {}, classes}; }

std::vector<std::string> column_names(const Model& model) {
  std::vector<std::string> names;
  for (const auto& column : model.extra_columns().columns) names.push_back(column.name);
  return names;
}

TEST(ClassifierTest, TheFirstFiveMeanSomethingOnlyAmongMoreClasses) {
  EXPECT_EQ(column_names(classifier(5)), std::vector<std::string>{"validation_f1"});
  EXPECT_EQ(column_names(classifier(10)), (std::vector<std::string>{"validation_f1", "validation_top5"}));
  EXPECT_EQ(column_names(classifier(kMostConfused + 1)), std::vector<std::string>{"validation_top5"});
  EXPECT_EQ(classifier(kMostConfused + 1).extra_columns().confusion_classes, 0);
}

TEST(ClassifierTest, SumsOfBatchesMakeTheFiguresOfAll) {
  const auto model = classifier(7);
  const at::Tensor logits = at::rand({40, 7}, at::kDouble);
  const at::Tensor targets = at::randint(7, {40}, at::kLong);
  auto whole = model.extra_sums({logits}, targets, Feedback::targets);
  ASSERT_EQ(whole.size(), model.extra_columns().sums);
  auto parts = model.extra_sums({logits.narrow(0, 0, 11)}, targets.narrow(0, 0, 11), Feedback::targets);
  const auto rest =
      model.extra_sums({logits.narrow(0, 11, 29)}, targets.narrow(0, 11, 29), Feedback::targets);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] += rest[i];
  EXPECT_EQ(parts, whole);

  std::int64_t among_first = 0;
  double f1 = 0;
  const at::Tensor said = logits.argmax(1);
  for (std::int64_t i = 0; i < 40; ++i) {
    const auto larger = logits[i].gt(logits[i][targets[i].item<std::int64_t>()]).sum().item<std::int64_t>();
    among_first += larger < 5 ? 1 : 0;
  }
  for (std::int64_t k = 0; k < 7; ++k) {
    const auto both = said.eq(k).logical_and(targets.eq(k)).sum().item<double>();
    f1 += 2 * both / (said.eq(k).sum().item<double>() + targets.eq(k).sum().item<double>()) / 7;
  }
  const auto values = model.extra_values(whole, 0.5);
  ASSERT_EQ(values.size(), 2U);
  EXPECT_NEAR(values[0], f1, 1e-12);
  EXPECT_NEAR(values[1], static_cast<double>(among_first) / 40, 1e-12);
}

TEST(ClassifierTest, ABatchWithoutSamplesAddsNothing) {
  const auto sums =
      classifier(3).extra_sums({at::empty({0, 3})}, at::empty({0}, at::kLong), Feedback::targets);
  EXPECT_EQ(sums, std::vector<double>(2 + 9, 0.0));
}

TEST(ClassifierTest, AClassThatNeitherIsNorIsSaidDoesNotCountInF1) {
  // Class 1 is always right, class 2 is taken for class 1 once, class 0 is nowhere.
  const std::vector<double> confusion = {0, 0, 0, 0, 3, 0, 0, 1, 1};
  EXPECT_NEAR(macro_f1(confusion, 3), (6.0 / 7 + 2.0 / 3) / 2, 1e-12);
  EXPECT_TRUE(std::isnan(macro_f1(std::vector<double>(9), 3)));
}

TEST(TokenAccuracyTest, TheLargestLogitDecidesAndOfEqualOnesTheFirst) {
  const at::Tensor logits = at::tensor({1.0, 5.0, 2.0, 3.0, 3.0, 1.0, 0.0, 0.0, 0.0}).view({3, 3});
  EXPECT_EQ(right_tokens(logits, at::tensor({1, 1, 0}, at::kLong), {}, nullptr), 2);
  EXPECT_EQ(right_tokens(at::empty({0, 3}), at::empty({0}, at::kLong), {}, nullptr), 0);
}

}  // namespace
}  // namespace dtrain::models
