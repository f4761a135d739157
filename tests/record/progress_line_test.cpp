#include "record/progress_line.hpp"

#include <gtest/gtest.h>

#include "support/captured_file.hpp"

namespace dtrain::record {
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

TEST(ProgressTest, TheFirstStepsOfAnEpochCountBesideThoseOfTheEpochBefore) {
  StepPace pace;
  pace.begin_epoch();
  pace.epoch_so_far(10, 640, 2.0);
  EXPECT_DOUBLE_EQ(pace.samples_per_s(), 320);
  pace.begin_epoch();
  pace.epoch_so_far(1, 64, 0.001);  // quick, since it was prepared before
  EXPECT_NEAR(pace.samples_per_s(), 704 / 2.001, 1e-9);
  EXPECT_NEAR(pace.step_s(), 2.001 / 11, 1e-12);
  pace.begin_epoch();
  pace.epoch_so_far(10, 640, 4.0);
  EXPECT_NEAR(pace.step_s(), 4.001 / 11, 1e-12);
}

TEST(ProgressTest, NothingIsDrawnOnQuietRanks) {
  const test::CapturedFile file;
  ProgressLine line(file.get(), ProgressLine::Style::none);
  line.show({});
  line.clear();
  std::fflush(file.get());
  EXPECT_EQ(file.text(), "");
}

TEST(ProgressTest, AFileGetsALineWithTheStepOfTheRun) {
  const test::CapturedFile file;
  ProgressLine line(file.get(), ProgressLine::Style::lines, {.least_s = 0, .most_s = 0});
  line.show({.epoch = 1,
             .epochs = 3,
             .step = 20,
             .steps = 200,
             .run_step = 20,
             .run_steps = 600,
             .loss = 0.5,
             .samples_per_s = 99.6,
             .seconds_left = 61});
  line.clear();
  EXPECT_EQ(file.text(), "step 20/600  epoch 1/3  10 %  loss 0.5000  100 samples/s  1:01 left\n");
}

TEST(ProgressTest, AFileGetsNoLineBeforeItsTime) {
  const test::CapturedFile file;
  ProgressLine line(file.get(), ProgressLine::Style::lines);
  for (int step = 1; step < 1000; ++step) line.show({.step = step});
  EXPECT_EQ(file.text(), "");
}

TEST(ProgressTest, ClearingLeavesTheCursorOnAnEmptyLine) {
  const test::CapturedFile file;
  ProgressLine line(file.get(), ProgressLine::Style::in_place);
  line.show({});
  line.clear();
  const std::string text = file.text();
  EXPECT_NE(text.find("epoch 1/1"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\033[K"));
}

}  // namespace
}  // namespace dtrain::record
