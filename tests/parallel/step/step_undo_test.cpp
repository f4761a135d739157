#include "parallel/step/step_undo.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "models/model.hpp"
#include "parallel/job_of_test.hpp"

namespace dtrain::parallel {
namespace {

/// A model with buffers, its parameters and their momentum in memory that all ranks share, each of which
/// updates one part; the last rank is the one that dies in the tests.
class StepUndoTest : public testing::Test {
 protected:
  StepUndoTest()
      : model_(models::find_model("resnet18")
                   .make({.task = "image_classification", .sample_shape = {3, 8, 8}, .classes = 3},
                         {{"width", "4"}})),
        memory_(job_.data(), 2 * FlatParameters::size_of(*model_), at::kFloat),
        parameters_(*model_, memory_.take(FlatParameters::size_of(*model_)),
                    memory_.fills() ? FlatParameters::Values::put : FlatParameters::Values::take),
        optimizer_(optim::make_optimizer({.name = "sgd", .momentum = 0.9}, parameters_.size(),
                                         parameters_.values().options(),
                                         [this](std::int64_t count) { return memory_.take(count); })),
        parts_({part_of(parameters_.size(), job_.data().rank(), job_.data().size())}),
        undo_(job_.data(), parameters_, *optimizer_, *model_, parts_, memory_.shared()) {
    set_part(1.0);
    meet();
  }

  bool dies() { return job_.rank() + 1 == job_.data().size(); }
  void meet() { job_.data().barrier().wait(); }
  /// This rank's part, or its first half.
  void set_part(double value, bool half = false) {
    const at::NoGradGuard no_grad;
    const auto size = half ? parts_[0].size() / 2 : parts_[0].size();
    parameters_.values().narrow(0, parts_[0].begin, size).fill_(value);
    optimizer_->state()[0].value.narrow(0, parts_[0].begin, size).fill_(10 * value);
    model_->buffers()[0]->value.fill_(value);
  }
  void expect_everywhere(double value) {
    EXPECT_TRUE(parameters_.values().eq(value).all().item<bool>());
    EXPECT_TRUE(optimizer_->state()[0].value.eq(10 * value).all().item<bool>());
    EXPECT_TRUE(model_->buffers()[0]->value.eq(value).all().item<bool>());
  }

  JobOfTest job_;
  std::unique_ptr<models::Model> model_;
  NodeMemory memory_;
  FlatParameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<Range> parts_;
  StepUndo undo_;
};

TEST_F(StepUndoTest, TakesBackWhatEachRankHasDoneAlsoHalfAPart) {
  undo_.keep(1);
  set_part(2.0, dies());
  meet();
  if (!dies() || job_.data().size() == 1) undo_.take_back(1);
  meet();
  if (dies()) model_->buffers()[0]->value.fill_(1.0);  // the one that is gone
  expect_everywhere(1.0);
}

TEST_F(StepUndoTest, ChangesNothingOfAStepThatNobodyHasBegun) {
  undo_.keep(1);
  set_part(2.0);
  meet();
  undo_.take_back(2);
  meet();
  expect_everywhere(2.0);
}

TEST_F(StepUndoTest, TakesBackTheLastStepOnly) {
  undo_.keep(1);
  set_part(2.0);
  meet();
  undo_.keep(2);
  set_part(3.0);
  meet();
  undo_.take_back(2);
  meet();
  expect_everywhere(2.0);
}

TEST_F(StepUndoTest, TakesBackARankThatHadBegunWhereOthersHadNot) {
  undo_.keep(1);
  set_part(2.0);
  meet();
  if (dies()) {
    undo_.keep(2);
    set_part(3.0);
  }
  meet();
  undo_.take_back(2);
  meet();
  expect_everywhere(2.0);
}

}  // namespace
}  // namespace dtrain::parallel
