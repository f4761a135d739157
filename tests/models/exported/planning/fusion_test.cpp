#include "models/exported/planning/fusion.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include <cstdlib>
#include <string>
#include <vector>

#include "models/exported/exported_model.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/planning/planned_program.hpp"
#include "models/layers/word_table.hpp"

namespace dtrain::models::exported {
namespace {

std::string program(const std::string& name) {
  return std::string(std::getenv("DTRAIN_PROGRAMS")) + "/" + name + ".pt2";
}

/// What became of a program's steps, by the operator's name, with what they do besides.
std::vector<std::string> steps_of(const std::string& name) {
  const PlannedProgram planned(program(name), PlannedProgram::Dropout::off);
  std::vector<std::string> found;
  for (const Run& run : planned.plan.runs) {
    for (const Step& step : run.steps) {
      const auto& target = planned.program.graph().nodes[step.node].target;
      const auto begin = std::string("torch.ops.aten.").size();
      std::string text = target.substr(begin, target.find('.', begin) - begin);
      if (step.residual) text += "+";
      if (step.relu_follows) text += "|";
      if (step.overwrites_input) text += "!";
      if (step.texts) text += "/";
      found.push_back(text);
    }
  }
  return found;
}

TEST(FusionTest, ASumAndAReluJoinTheBatchNormBeforeThem) {
  EXPECT_EQ(steps_of("residual"),
            (std::vector<std::string>{"conv2d", "batch_norm|",                              //
                                      "conv2d", "batch_norm+|",                             //
                                      "conv2d", "batch_norm", "conv2d", "batch_norm+|",     // in place
                                      "conv2d", "batch_norm+",                              // without ReLU
                                      "adaptive_avg_pool2d", "batch_norm", "add", "relu!",  // broadcast
                                      "flatten", "linear"}));
}

TEST(FusionTest, APoolComesBeforeItsReluAndFunctionsOverwriteWhatTheyUseUp) {
  EXPECT_EQ(steps_of("pooled"),
            (std::vector<std::string>{"conv2d", "max_pool2d|", "conv_transpose2d", "sigmoid!", "flatten",
                                      "linear", "tanh", "mul", "mul", "linear", "relu!", "add", "linear"}));
}

TEST(FusionTest, TheMeanOfWordsIsOneStepWhoseTableIsKnown) {
  EXPECT_EQ(steps_of("bag"), (std::vector<std::string>{"embedding/", "linear"}));
  EXPECT_EQ(steps_of("embedding_bag"), (std::vector<std::string>{"embedding_bag/", "linear"}));
  for (const char* name : {"bag", "embedding_bag"}) {
    const auto model =
        registration(program(name))
            .make({.task = "text_classification", .sample_shape = {6}, .classes = 5, .vocabulary = 11}, {});
    ASSERT_EQ(model->layers().size(), 2U);
    const auto* first = dynamic_cast<const WordTable*>(model->layers().front().get());
    ASSERT_NE(first, nullptr);
    ASSERT_NE(first->table(), nullptr);
    EXPECT_EQ(first->table()->name, "embedding.weight");
    EXPECT_TRUE(first->table()->by_rows);
  }
}

TEST(FusionTest, OnlyTheMeanWithPaddingZeroIsThatOfRealWords) {
  const auto found = steps_of("bags");
  EXPECT_EQ(std::ranges::count(found, "embedding_bag/"), 1);
  EXPECT_EQ(std::ranges::count(found, "embedding_bag"), 4);
  EXPECT_EQ(std::ranges::count(steps_of("padded_elsewhere"), "embedding/"), 0);
}

}  // namespace
}  // namespace dtrain::models::exported
