#include "parallel/gradients/compression/later_compression.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "parallel/gradients/compression/nodes_in_memory.hpp"
#include "parallel/gradients/compression/placed_group.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

using testing::HasSubstr;

class LaterCompressionTest : public testing::Test {
 protected:
  LaterCompressionTest() { gradients_->lay_out(parameters_, {{0, 1024}, {1024, 4096}}, group_); }

  PlacedGroup group_{{.node = 0, .nodes = 2}};
  std::unique_ptr<models::Model> model_ = small_model("64,64");
  FlatParameters parameters_{*model_, at::kFloat};
  std::unique_ptr<GradientCompression> gradients_ =
      make_compression(CompressionChoice::parse("topk=0.01"), 1, 3);
};

TEST_F(LaterCompressionTest, TheFirstStepsOfTheTrainingTravelAsTheyAre) {
  for (std::int64_t number = 1; number <= 6; ++number) {
    gradients_->begin_step(number, 1);
    auto& encoding = gradients_->of(1);
    EXPECT_EQ(encoding.encodes(), number > 3);
    EXPECT_EQ(encoding.takes_whole_buffers(), number > 3);
    EXPECT_EQ(encoding.bytes(1024), number > 3 ? 8U * 10 : 4U * 1024);
    std::vector<float> values(1024, 1.0F);
    EXPECT_EQ(encoding.begin(values, 0, 0, 2) == nullptr, number <= 3);
    EXPECT_THAT(gradients_->news(), number == 4 ? HasSubstr("from step 4 on") : HasSubstr(""));
  }
}

TEST_F(LaterCompressionTest, ARunThatGoesOnDoesNotBeginAnew) {
  gradients_->begin_step(4711, 1);
  EXPECT_TRUE(gradients_->of(0).encodes());
  EXPECT_EQ(gradients_->news(), "");
}

TEST_F(LaterCompressionTest, ItsStateIsThatOfTheCompression) {
  EXPECT_EQ(gradients_->state().size(), 4U) << "errors of the parameters in its buckets";
}

TEST_F(LaterCompressionTest, NothingWaitsWhereNoStepsDo) {
  EXPECT_EQ(dynamic_cast<LaterCompression*>(make_compression({CompressionChoice::Kind::int8}, 1).get()),
            nullptr);
}

}  // namespace
}  // namespace dtrain::parallel
