#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "models/plugins/additions.hpp"
#include "models/plugins/load.hpp"

namespace dtrain::models {
namespace {

/// Half of the squared error, on purpose without a count of what is right.
LossSums half_squares(const Tensors& outputs, const at::Tensor& targets) {
  return {.loss = (outputs.at(0).squeeze(1) - targets).square().sum() / 2,
          .weight = static_cast<double>(targets.size(0))};
}

std::unique_ptr<Model> none(const DatasetFacts& /*facts*/, const ModelOptions& /*options*/) {
  return nullptr;
}

std::string refusal(const Additions& more) {
  try {
    add_from_plugin("libmine.so", more);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return {};
}

TEST(PluginsTest, TheStampIsWhatStandsInItsFrame) {
  EXPECT_EQ(stamp_in("ab\0dtrain-plugin-stamp{plug-in 1, LibTorch 2}cd"), std::nullopt);  // ends at the zero
  using namespace std::string_view_literals;
  EXPECT_EQ(stamp_in("ab\0dtrain-plugin-stamp{plug-in 1, LibTorch 2}cd"sv), "plug-in 1, LibTorch 2");
  EXPECT_EQ(stamp_in("dtrain-plugin-stamp{"sv), std::nullopt);
  EXPECT_EQ(stamp_in("dtrain-plugin-stamp{" + std::string(1000, 'a') + "}"), std::nullopt);
  EXPECT_EQ(stamp_in(""), std::nullopt);
}

TEST(PluginsTest, ATakenOrImpossibleNameIsRefusedAndAddsNothing) {
  EXPECT_THAT(refusal({.models = {{.name = "mlp", .make = &none}}}),
              testing::HasSubstr("a model called mlp, and there is one"));
  EXPECT_THAT(refusal({.losses = {{.name = "mse", .sums = &half_squares}}}),
              testing::HasSubstr("a loss called mse"));
  EXPECT_THAT(refusal({.models = {{.name = "a b", .make = &none}}}), testing::HasSubstr("letters, digits"));
  EXPECT_THAT(refusal({.losses = {{.name = "", .sums = &half_squares}}}),
              testing::HasSubstr("letters, digits"));
  EXPECT_THAT(refusal({.models = {{.name = "empty"}}}), testing::HasSubstr("without its function"));
  EXPECT_THAT(refusal({.models = {{.name = "fine", .make = &none}},
                       .losses = {{.name = "twice", .sums = &half_squares},
                                  {.name = "twice", .sums = &half_squares}}}),
              testing::HasSubstr("a loss called twice"));
  EXPECT_THROW(find_model("fine"), Error);
  EXPECT_FALSE(is_added_loss("twice"));
}

TEST(PluginsTest, AnAddedLossTrainsAModelOfDtrain) {
  add_from_plugin("libmine.so", {.losses = {{.name = "half_squares", .sums = &half_squares}}});
  ASSERT_TRUE(is_added_loss("half_squares"));
  const DatasetFacts facts{.task = "regression", .sample_shape = {3}, .loss = "half_squares"};
  const auto model = find_model("mlp").make(facts, {});
  const auto outputs = at::full({4, 1}, 3.0).requires_grad_();
  const LossSums sums = model->loss({outputs}, at::full({4}, 1.0));
  EXPECT_EQ(sums.loss.item<float>(), 8.0F);  // 4 samples of 2^2 / 2
  EXPECT_EQ(sums.weight, 4);
  EXPECT_FALSE(model->has_cross_entropy());
  EXPECT_EQ(model->parameter_count(), 3 * 250 + 250 + 250 * 100 + 100 + 100 + 1);
}

TEST(PluginsTest, AnAddedLossCountsWhatTheModelTakesForRight) {
  add_from_plugin("libmine.so",
                  {.losses = {{.name = "zero", .sums = [](const Tensors& outputs, const at::Tensor& targets) {
                                 return LossSums{.loss = outputs.at(0).sum() * 0,
                                                 .weight = static_cast<double>(targets.size(0))};
                               }}}});
  const DatasetFacts facts{.task = "table_classification", .sample_shape = {3}, .classes = 2, .loss = "zero"};
  const auto model = find_model("mlp").make(facts, {});
  const auto sums = model->loss({at::eye(2)}, at::zeros({2}, at::kLong));
  EXPECT_EQ(sums.correct.item<std::int64_t>(), 1);
  EXPECT_EQ(sums.loss.item<float>(), 0.0F);
}

}  // namespace
}  // namespace dtrain::models
