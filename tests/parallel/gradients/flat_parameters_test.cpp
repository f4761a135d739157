#include "parallel/gradients/flat_parameters.hpp"

#include <gtest/gtest.h>

#include "models/layers/lstm_buffer.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

TEST(FlatParametersTest, ValuesMoveIntoOneBlockUnchangedLastLayerFirst) {
  const auto before = small_model();
  auto model = small_model();
  FlatParameters parameters(*model, at::kFloat);
  const auto old = const_cast<models::Model&>(*before).parameters();
  const auto now = model->parameters();
  ASSERT_EQ(old.size(), now.size());
  for (std::size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(at::equal(old[i]->value, now[i]->value));
  EXPECT_EQ(parameters.entries().front().parameter, now.back());
  for (const auto& entry : parameters.entries()) {
    EXPECT_EQ(entry.offset % FlatParameters::kAlignment, 0);
    EXPECT_EQ(entry.parameter->value.data_ptr(), parameters.values().data_ptr<float>() + entry.offset);
    EXPECT_TRUE(entry.parameter->value.is_leaf() && entry.parameter->value.requires_grad());
  }
}

TEST(FlatParametersTest, AnUpdateOfTheBlockIsAnUpdateOfTheModel) {
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  parameters.values().fill_(0.5);
  for (const auto* parameter : model->parameters()) {
    EXPECT_TRUE(at::equal(parameter->value, at::full_like(parameter->value, 0.5)));
  }
}

TEST(FlatParametersTest, WeightsOfAnLstmLieAsCudnnTakesThem) {
  auto model = models::find_model("seq2seq").make(
      {.task = "translation", .sample_shape = {20}, .vocabulary = 50, .target_vocabulary = 60},
      {{"hidden", "16"}, {"embedding", "12"}, {"layers", "2"}});
  model->initialise(1);
  FlatParameters parameters(*model, at::kFloat);
  int lstms = 0;
  for (auto& layer : model->layers()) {
    const auto& all = layer->parameters();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].name.find("weight_ih") == std::string::npos) continue;
      ++lstms;
      const models::LstmWeights weights = models::lstm_weights(all, i, 0);
      EXPECT_EQ(models::lstm_buffer(weights).data_ptr(), weights.input.data_ptr()) << all[i].name;
    }
  }
  EXPECT_EQ(lstms, 4);
}

TEST(FlatParametersTest, TheLayoutHashTellsModelsApart) {
  auto a = small_model();
  auto b = small_model();
  auto other = models::find_model("mlp").make(
      {.task = "table_classification", .sample_shape = {12}, .classes = 3}, {{"hidden", "8,16"}});
  EXPECT_EQ(FlatParameters(*a, at::kFloat).layout_hash(), FlatParameters(*b, at::kFloat).layout_hash());
  EXPECT_NE(FlatParameters(*a, at::kFloat).layout_hash(), FlatParameters(*other, at::kFloat).layout_hash());
}

}  // namespace
}  // namespace dtrain::parallel
