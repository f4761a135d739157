#include "train/loop/progress.hpp"

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

TEST(ProgressTest, NothingIsDrawnWhereNoTerminalIsWatched) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ProgressLine line(file, ProgressLine::Style::none);
  line.show({});
  line.clear();
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(ProgressTest, ClearingLeavesTheCursorOnAnEmptyLine) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ProgressLine line(file, ProgressLine::Style::in_place);
  line.show({});
  line.clear();
  const auto length = static_cast<std::size_t>(std::ftell(file));
  std::rewind(file);
  std::string text(length, '\0');
  ASSERT_EQ(std::fread(text.data(), 1, length, file), length);
  EXPECT_NE(text.find("epoch 1/1"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\033[K"));
  std::fclose(file);
}

}  // namespace
}  // namespace dtrain::train
