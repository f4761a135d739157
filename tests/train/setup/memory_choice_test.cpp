#include "train/setup/memory_choice.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace dtrain::train {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr double kParameters = 6'062'090;  // of a wide mlp

RunConfig resolved(RunConfig config) {
  config.resolve(4);
  return config;
}

/// Adam on four ranks, each alone on its node unless `ranks_per_node` says otherwise.
class MemoryChoiceTest : public testing::Test {
 protected:
  MemoryChoiceTest() {
    config_.model.options = {{"hidden", "1024,1024,1024,1024,1024,1024"}};
    config_.update.rule.name = "adam";
    config_.update.rule.momentum = 0;
    config_.batch.global_batch = 16;
    config_.bucket_mb = 1;
    config_.limit_steps = 1;  // no checkpoint is written beside it
  }

  MemoryChoice choose(double bytes, int ranks_per_node = 1) {
    RunConfig config = config_;
    config.pipeline.memory_limit = fmt::format("{:.0f}", bytes);
    config.resolve(4);
    config.validate();
    const auto open = open_options(config, true);
    EXPECT_TRUE(open.any());
    return choose_within_limit(config, open, topology::uniform_cluster(4 / ranks_per_node, ranks_per_node),
                               false, library_);
  }
  MemoryChoice choose_for_each(double bytes_of_parameter, int ranks_per_node = 1) {
    return choose(bytes_of_parameter * kParameters, ranks_per_node);
  }
  void give(const std::string& name) { config_.given.insert(name); }

  RunConfig config_;
  h5::Library library_;
};

TEST_F(MemoryChoiceTest, TheFirstStageThatFitsIsTaken) {
  for (const auto& [bytes, stage] : {std::pair(20.3, "ddp"), std::pair(16.0, "zero1"),
                                     std::pair(13.0, "zero2"), std::pair(11.3, "zero3")}) {
    const auto choice = choose_for_each(bytes);
    EXPECT_EQ(choice.strategy, stage) << bytes;
    EXPECT_EQ(choice.recompute, "none");
    EXPECT_EQ(choice.micro_batches, 4);
    EXPECT_THAT(choice.words,
                StartsWith(fmt::format("--strategy {} --recompute none --micro-batches 4 fits", stage)));
  }
}

TEST_F(MemoryChoiceTest, RanksOfOneNodeHaveParametersAndOptimizerOnceAlready) {
  EXPECT_EQ(choose_for_each(11, 4).strategy, "ddp");    // 4 + 12 / 4, and 12 / 4 to save
  EXPECT_EQ(choose_for_each(13, 2).strategy, "zero2");  // two nodes: no block is common to all
}

TEST_F(MemoryChoiceTest, OfATensorGroupTheLargestSliceHasRoom) {
  config_.mesh = "data=2,tensor=2";
  const auto estimate = [&](const std::string& hidden) {
    config_.model.options = {{"hidden", hidden}};
    const auto words = choose(1e9).words;
    std::smatch found;
    EXPECT_TRUE(std::regex_search(words, found, std::regex("by estimate ([0-9.]+) MiB"))) << words;
    return std::stod(found.str(1));
  };
  // Of three units a rank has one and the other two, as both have of four.
  EXPECT_GE(estimate("3,100000,3"), 0.99 * estimate("4,100000,4"));
}

TEST_F(MemoryChoiceTest, LayersRunAgainBeforeMicroBatchesBecomeSmaller) {
  config_.model.name = "gpt";
  config_.model.options = {{"layers", "4"}, {"heads", "2"}, {"width", "64"}};
  config_.batch.global_batch = 32;
  bool repeats = false;
  for (double bytes = 1e9; bytes > 1e6; bytes *= 0.95) {
    const auto choice = choose(bytes);
    if (choice.micro_batches == 4) {
      repeats = repeats || choice.recompute == "auto";
      continue;
    }
    EXPECT_TRUE(repeats) << "no limit makes layers run again alone";
    EXPECT_EQ(choice.micro_batches, 8);
    return;
  }
  ADD_FAILURE() << "no limit makes micro-batches smaller";
}

TEST_F(MemoryChoiceTest, SmallerMicroBatchesHelpWhereNothingElseDoes) {
  config_.batch.global_batch = 32768;
  const double activations = 4.0 * 8192 * (784 + 6 * 1024 + 10 + 2 * 1024);  // of a micro-batch of a quarter
  EXPECT_EQ(choose(17 * kParameters + 1.1 * activations).micro_batches, 4);
  const auto smaller = choose(17 * kParameters + 0.3 * activations);
  EXPECT_GT(smaller.micro_batches, 4);
  EXPECT_EQ(smaller.micro_batches % 4, 0);
}

TEST_F(MemoryChoiceTest, WhatTheUserGaveStays) {
  config_.strategy = "zero1";
  give("strategy");
  EXPECT_EQ(choose_for_each(20).strategy, "zero1");
  config_.batch.micro_batches = 8;
  give("micro-batches");
  EXPECT_EQ(choose_for_each(20).micro_batches, 8);
  give("recompute");
  RunConfig config = config_;
  config.pipeline.memory_limit = "1GiB";
  EXPECT_FALSE(open_options(config, true).any());
}

TEST_F(MemoryChoiceTest, ARunThatGoesOnKeepsItsMicroBatches) {
  config_.pipeline.memory_limit = "1GiB";
  EXPECT_FALSE(open_options(config_, false).micro_batches);
  EXPECT_TRUE(open_options(config_, false).strategy);
  config_.pipeline.memory_limit = "none";
  EXPECT_FALSE(open_options(config_, true).any());
}

TEST_F(MemoryChoiceTest, BitsThatAreToBeTheSameOnAnyMeshDoNotDependOnWhatFits) {
  config_.pipeline.memory_limit = "1GiB";
  config_.reproducible = true;
  EXPECT_FALSE(open_options(config_, true).micro_batches);
  EXPECT_TRUE(open_options(config_, true).recompute);
  config_.kernels = "fused";
  config_.precision = "bf16";
  for (const char* recompute : {"none", "full"}) {
    config_.pipeline.recompute = recompute;
    EXPECT_NO_THROW(resolved(config_).validate()) << recompute;
  }
  config_.pipeline.recompute = "auto";
  EXPECT_THROW(resolved(config_).validate(), Error);
  config_.kernels = "own";
  EXPECT_NO_THROW(resolved(config_).validate());
}

TEST_F(MemoryChoiceTest, AStrategyThatMakesOtherStepsIsNoneOfThese) {
  config_.pipeline.memory_limit = "1GiB";
  config_.strategy = "local_sgd";
  EXPECT_FALSE(open_options(config_, true).strategy);
}

TEST_F(MemoryChoiceTest, ClientsMakeTheirStepsInOnePiece) {
  config_.pipeline.memory_limit = "1GiB";
  config_.strategy = "fedavg";
  EXPECT_FALSE(open_options(config_, true).micro_batches);
}

TEST_F(MemoryChoiceTest, StagesThatCannotRunAreLeftOut) {
  config_.strategy_options.compression = "int8";
  give("compression");  // zero2 and zero3 have none
  EXPECT_EQ(choose_for_each(16).strategy, "zero1");
  EXPECT_THROW(choose_for_each(8), Error);
}

TEST_F(MemoryChoiceTest, WhereNothingFitsTheNearestIsNamed) {
  try {
    choose_for_each(2);
    ADD_FAILURE() << "two bytes for a parameter are not enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.subject(), StartsWith("--memory-limit"));
    EXPECT_THAT(error.problem(), HasSubstr("the nearest, --strategy zero3"));
    EXPECT_THAT(error.problem(), HasSubstr("bytes of a rank"));
    EXPECT_THAT(error.advice(), HasSubstr("allow"));
  }
}

}  // namespace
}  // namespace dtrain::train
