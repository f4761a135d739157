#include "train/progress.hpp"

#include <gtest/gtest.h>

namespace dtrain::train {
namespace {

TEST(ProgressTest, TheLineSaysEpochShareLossSpeedAndTimeLeft) {
  const ProgressState state{.epoch = 2,
                            .epochs = 10,
                            .step = 50,
                            .steps = 100,
                            .loss = 0.25,
                            .samples_per_s = 12345.4,
                            .seconds_left = 63.2};
  EXPECT_EQ(progress_text(state),
            "epoch 2/10 [############............]  50 %  loss 0.2500  12345 samples/s  1:03 left");
}

TEST(ProgressTest, HoursAppearOnlyWhenThereAreSome) {
  EXPECT_NE(progress_text({.seconds_left = 3725}).find("1:02:05 left"), std::string::npos);
  EXPECT_NE(progress_text({.seconds_left = 7}).find(" 0:07 left"), std::string::npos);
}

TEST(ProgressTest, NothingIsDrawnWhereTheOutputIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ProgressLine line(file, ProgressLine::style_for(file));
  line.show({});
  line.clear();
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

}  // namespace
}  // namespace dtrain::train
