#include "models/exported/planning/kept_values.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "models/exported/operators.hpp"
#include "models/exported/planning/planned_program.hpp"

namespace dtrain::models::exported {
namespace {

/// The steps of a program, a star behind each whose result backward needs.
std::vector<std::string> steps_of(const std::string& name) {
  const PlannedProgram planned(std::string(std::getenv("DTRAIN_PROGRAMS")) + "/" + name + ".pt2",
                               PlannedProgram::Dropout::off);
  std::vector<std::string> found;
  for (const Run& run : planned.plan.runs) {
    for (const Step& step : run.steps) {
      const Node& node = planned.program.graph().nodes[step.node];
      const auto begin = std::string("torch.ops.aten.").size();
      const std::string text = node.target.substr(begin, node.target.find('.', begin) - begin);
      found.push_back(planned.kept[result_of(node)] ? text + "*" : text);
    }
  }
  return found;
}

TEST(KeptValuesTest, AreThoseThatDerivativesRead) {
  // In the end a norm's result is added to another, of which the ReLU overwrites the sum.
  EXPECT_EQ(steps_of("residual"),
            (std::vector<std::string>{"conv2d*", "batch_norm*", "conv2d*", "batch_norm*",  //
                                      "conv2d*", "batch_norm*", "conv2d*", "batch_norm*",  //
                                      "conv2d*", "batch_norm*", "adaptive_avg_pool2d*", "batch_norm", "add*",
                                      "relu*", "flatten*", "linear*"}));
  // The product of two is only added, twice the other goes into a linear layer.
  EXPECT_EQ(steps_of("pooled"), (std::vector<std::string>{"conv2d*", "max_pool2d*", "conv_transpose2d*",
                                                          "sigmoid*", "flatten*", "linear*", "tanh*", "mul",
                                                          "mul*", "linear*", "relu*", "add*", "linear*"}));
}

}  // namespace
}  // namespace dtrain::models::exported
