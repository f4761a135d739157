#include "options/recipe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "models/model.hpp"

namespace dtrain::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

train::RunConfig config_of(const std::string& model) {
  train::RunConfig config;
  config.model.name = model;
  return config;
}

train::RunConfig by_recipe(const std::string& model) {
  auto config = config_of(model);
  apply_recipe(config);
  return config;
}

TEST(RecipeTest, ThoseOfTheDesign) {
  struct Row {
    const char* model;
    int epochs;
    const char* optimizer;
    double rate, weight_decay;
    const char* schedule;
    int batch;
    double clip;
    const char* augment;
  };
  for (const Row& row : {Row{"mlp", 10, "adam", 1e-3, 0, "constant", 64, 0, "off"},
                         Row{"cnn", 20, "sgd", 0.01, 5e-4, "one_cycle", 64, 0, "on"},
                         Row{"vgg11", 3, "sgd", 0.05, 5e-4, "one_cycle", 128, 0, "on"},
                         Row{"resnet18", 5, "sgd", 0.1, 5e-4, "one_cycle", 128, 0, "on"},
                         Row{"nbow", 5, "adam", 1e-3, 0, "constant", 64, 0, "off"},
                         Row{"seq2seq", 10, "adam", 1e-3, 0, "constant", 128, 1, "off"},
                         Row{"conv_autoencoder", 10, "adam", 1e-3, 0, "constant", 64, 0, "off"},
                         Row{"gpt", 5, "adamw", 1e-3, 0.1, "cosine", 64, 1, "off"}}) {
    SCOPED_TRACE(row.model);
    const auto config = by_recipe(row.model);
    EXPECT_EQ(config.epochs, row.epochs);
    EXPECT_EQ(config.update.rule.name, row.optimizer);
    EXPECT_EQ(config.update.rule.momentum, config.update.rule.adaptive() ? 0 : 0.9);
    EXPECT_EQ(config.update.rule.weight_decay, row.weight_decay);
    EXPECT_EQ(config.update.schedule.learning_rate, row.rate);
    EXPECT_EQ(config.update.schedule.name, row.schedule);
    EXPECT_EQ(config.batch.global_batch, row.batch);
    EXPECT_EQ(config.update.grad_clip, row.clip);
    EXPECT_EQ(config.data.augment, row.augment);
  }
  const auto gpt = by_recipe("gpt");
  EXPECT_EQ(gpt.update.rule.beta1, 0.9);
  EXPECT_EQ(gpt.update.rule.beta2, 0.99);
  EXPECT_EQ(gpt.update.schedule.warmup_steps, 100);
  EXPECT_EQ(gpt.update.decay, "matrices");
}

TEST(RecipeTest, EachRegisteredModelHasOneThatARunAccepts) {
  for (const auto& model : models::registry()) {
    auto config = by_recipe(model.name);
    config.resolve(1);
    EXPECT_NO_THROW(config.validate()) << model.name;
    EXPECT_TRUE(config.given.empty()) << "the user has given nothing";
  }
}

TEST(RecipeTest, TheUsersValueStays) {
  auto config = config_of("cnn");
  config.epochs = 2;
  config.update.schedule.learning_rate = 0.5;
  config.given = {"epochs", "learning-rate"};
  apply_recipe(config);
  EXPECT_EQ(config.epochs, 2);
  EXPECT_EQ(config.update.schedule.learning_rate, 0.5);
  EXPECT_EQ(config.update.rule.name, "sgd");
}

TEST(RecipeTest, WhatTheUsersChoiceLeavesWithoutMeaningIsNotTaken) {
  auto with_adam = config_of("cnn");
  with_adam.update.rule.name = "adam";
  with_adam.given = {"optimizer"};
  apply_recipe(with_adam);
  EXPECT_EQ(with_adam.update.rule.momentum, 0);
  auto one_cycle = config_of("gpt");
  one_cycle.update.schedule.name = "one_cycle";
  one_cycle.given = {"schedule"};
  apply_recipe(one_cycle);
  EXPECT_EQ(one_cycle.update.schedule.warmup_steps, 0);
}

TEST(RecipeTest, AnOptionThatIsNotThereOrDoesNotTakeTheValueIsRefused) {
  const auto refusal = [](const std::map<std::string, std::string>& options) -> std::string {
    train::RunConfig config;
    try {
      apply_recipe(options, config);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing is refused";
  };
  EXPECT_THAT(refusal({{"learning-rat", "1"}}), AllOf(HasSubstr("--learning-rat"), HasSubstr("recipe")));
  EXPECT_THAT(refusal({{"epochs", "many"}}), AllOf(HasSubstr("epochs"), HasSubstr("many")));
}

}  // namespace
}  // namespace dtrain::app
