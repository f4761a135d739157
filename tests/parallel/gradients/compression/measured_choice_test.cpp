#include "parallel/gradients/compression/measured_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "parallel/gradients/compression/nodes_in_memory.hpp"
#include "parallel/gradients/compression/placed_group.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

using testing::HasSubstr;

TEST(FastestFormTest, AnotherThanThePlainestHasToGainATenth) {
  EXPECT_EQ(fastest_form({1.0, 0.5, 0.3}), 2U);
  EXPECT_EQ(fastest_form({1.0, 0.5, 0.5}), 1U) << "the plainer of equal ones";
  EXPECT_EQ(fastest_form({1.0, 0.95, 0.91}), 0U);
  EXPECT_EQ(fastest_form({1.0, 0.95, 0.8}), 2U);
  EXPECT_EQ(fastest_form({1.0, 2.0, 3.0}), 0U);
  EXPECT_EQ(fastest_form({0.0, 0.0, 0.0}), 0U) << "nothing was measured";
}

/// Steps in which the two buckets take these seconds, by form.
class MeasuredGradientsTest : public testing::Test {
 protected:
  using Seconds = std::array<double, kWireForms.size()>;
  static constexpr int kTried = MeasuredGradients::kTrials * static_cast<int>(kWireForms.size());

  MeasuredGradientsTest() { gradients_.lay_out(parameters_, {{0, 1024}, {1024, 4096}}, group_); }

  /// The form of a bucket, by its number.
  std::size_t form(std::size_t bucket) { return gradients_.of(bucket).id() - 200U; }
  void step(int number, const Seconds& first, const Seconds& second) {
    gradients_.begin_step(number);
    for (const auto& [bucket, seconds] : {std::pair(0U, first), std::pair(1U, second)}) {
      const double all = seconds[form(bucket)] + (number <= 3 ? 10 : 0);  // a first time takes long
      gradients_.of(bucket).crossed(all / 4);
      gradients_.of(bucket).crossed(all - all / 4);
    }
  }

  PlacedGroup group_{{.node = 0, .nodes = 2}};
  std::unique_ptr<models::Model> model_ = small_model("64,64");
  FlatParameters parameters_{*model_, at::kFloat};
  MeasuredGradients gradients_{1};
};

TEST_F(MeasuredGradientsTest, EachBucketStaysWithWhatWasFastest) {
  for (int number = 1; number <= kTried; ++number) {
    step(number, {1, 0.6, 0.4}, {1, 1.2, 1.5});
    EXPECT_EQ(gradients_.news(), "");
    EXPECT_EQ(form(0), static_cast<std::size_t>(number - 1) % 3) << "all are tried in turn";
  }
  for (int number = kTried + 1; number <= kTried + 5; ++number) {
    step(number, {1, 0.6, 0.4}, {1, 1.2, 1.5});
    EXPECT_EQ(form(0), 2U);
    EXPECT_EQ(form(1), 0U);
    EXPECT_EQ(gradients_.of(1).begin({}, 0, 0, 2), nullptr) << "as it is";
    EXPECT_EQ(gradients_.of(1).bytes(256), 1024U);
    EXPECT_EQ(gradients_.of(0).bytes(256), 260U);
    const auto news = gradients_.news();
    if (number > kTried + 1) {
      EXPECT_EQ(news, "");
    } else {
      EXPECT_THAT(news, HasSubstr("none for 0.0123 MB, int8 for 0.0041 MB (400 ms instead of 1000)"));
    }
  }
}

TEST_F(MeasuredGradientsTest, ASlowStepDecidesNothing) {
  for (int number = 1; number <= kTried + 1; ++number) {
    const double late = number == 4 ? 100 : 1;
    step(number, {late, 0.97, 0.99}, {1, 1, 1});
  }
  EXPECT_EQ(form(0), 0U);
  EXPECT_EQ(form(1), 0U);
}

TEST_F(MeasuredGradientsTest, AVirtualClockCountsInsteadOfWhatWasMeasured) {
  for (int number = 1; number <= kTried + 1; ++number) {
    gradients_.begin_step(number);
    for (const std::size_t bucket : {0U, 1U}) {
      auto& encoding = gradients_.of(bucket);
      EXPECT_EQ(encoding.encodes(), form(bucket) != 0) << "as it is";
      encoding.crossed(form(bucket) == 0 ? 1 : 5);
      encoding.counted(bucket == 0 && form(bucket) == 1 ? 0.25 : 0.5);
      encoding.counted(0.5);
    }
  }
  EXPECT_EQ(form(0), 1U);
  EXPECT_EQ(form(1), 0U);
}

}  // namespace
}  // namespace dtrain::parallel
