#include "parallel/gradients/compression/measured_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

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

TEST(ChoiceClockTest, RoundingTakesSomeTime) {
  for (const auto type : {WireType::float16, WireType::int8}) {
    EXPECT_GT(ChoiceClock::measured_rounding_s(type), 1e-12);
    EXPECT_LT(ChoiceClock::measured_rounding_s(type), 1e-5);
  }
}

/// Links and ranks as they are assumed. Seconds; bytes.
struct Machine {
  std::vector<std::size_t> values = {1024, 3072};  ///< Of each bucket.
  double compute_s = 1;                            ///< Of a step.
  double latency_s = 0;
  double byte_s = 0;            ///< On the link.
  FormSeconds rounding_s = {};  ///< Of a value.
  double hidden = 0;            ///< The share of computing behind which messages hide.
  bool virtual_clock = false;
  double noise = 0;  ///< Of what is measured: crossings up to so much more or less, and a fifth of it steps.

  double message_s(std::size_t bytes) const { return 2 * latency_s + byte_s * static_cast<double>(bytes); }
};

/// Of several ranks the others take at least this.
class SlowestPeer final : public PlacedGroup {
 public:
  using PlacedGroup::PlacedGroup;
  comm::Handle all_reduce(comm::Buffer values, comm::ReduceOp op, comm::Algorithm /*algorithm*/) override {
    EXPECT_EQ(op, comm::ReduceOp::max);
    ++sums;
    const std::span own(static_cast<double*>(values.data), values.count);
    for (std::size_t i = 0; i < std::min(own.size(), others.size()); ++i)
      own[i] = std::max(own[i], others[i]);
    others.clear();
    bytes = values.bytes();
    return {};
  }
  std::vector<double> others;  ///< At the next sum.
  std::size_t bytes = 0;       ///< Of the last one.
  int sums = 0;
};

/// Steps on a machine, by a clock that shows what it takes.
class Training {
 public:
  explicit Training(Machine machine) : machine_(std::move(machine)), chance_(7) {
    std::vector<Range> buckets;
    std::int64_t end = 0;
    for (const auto values : machine_.values) {
      buckets.push_back({end, end + static_cast<std::int64_t>(values)});
      end = buckets.back().end;
    }
    room_.resize(*std::ranges::max_element(machine_.values));
    gradients_.lay_out(parameters_, buckets, group);
    for (const auto s : {machine_.rounding_s[1], machine_.rounding_s[2]})
      taken_s += s * static_cast<double>(ChoiceClock::kProbes * ChoiceClock::kProbedValues);
  }

  std::size_t form(std::size_t bucket) { return gradients_.of(bucket).id() - 200U; }

  void step() {
    const int sums = group.sums;
    gradients_.begin_step(++number_, 1);
    if (group.sums > sums) taken_s += machine_.message_s(group.bytes);
    const double begun = now_;
    std::vector<double> crossing;
    double messages = 0;
    double rounding = 0;
    for (std::size_t bucket = 0; bucket < machine_.values.size(); ++bucket) {
      auto& encoding = gradients_.of(bucket);
      const auto values = machine_.values[bucket];
      const double message = machine_.message_s(encoding.bytes(values));
      const double round =
          encoding.encodes() ? static_cast<double>(values) * machine_.rounding_s[form(bucket)] : 0;
      EXPECT_EQ(encoding.begin(std::span(room_).first(values), 0, 0, 2) == nullptr, !encoding.encodes());
      messages += message;
      rounding += round;
      crossing.push_back(message + round);
    }
    const double exposed = std::max(0.0, messages - machine_.hidden * machine_.compute_s);
    const double real = machine_.compute_s + rounding + exposed;
    now_ = begun + real * (1 + machine_.noise / 5 * drawn());
    for (std::size_t bucket = 0; bucket < crossing.size(); ++bucket) {
      auto& encoding = gradients_.of(bucket);
      const double measured = crossing[bucket] * (1 + machine_.noise * drawn());
      encoding.crossed(measured / 4);
      encoding.crossed(measured - measured / 4);
      if (machine_.virtual_clock)
        encoding.counted(crossing[bucket],
                         static_cast<double>(machine_.values[bucket]) * machine_.rounding_s[1]);
    }
    now_ += 0.1 * machine_.compute_s;  // what follows belongs to no message
    taken_s += real + machine_.message_s(64);
    if (auto news = gradients_.news(); !news.empty()) all_news.push_back(std::move(news));
  }

  SlowestPeer group{{.node = 0, .nodes = 2}};
  double taken_s = 0;  ///< All steps, what was measured for the choice, and its sums.
  std::vector<std::string> all_news;
  Machine& machine() { return machine_; }

 private:
  double drawn() { return std::uniform_real_distribution(-1.0, 1.0)(chance_); }

  Machine machine_;
  std::mt19937 chance_;
  std::vector<float> room_;
  std::unique_ptr<models::Model> model_ = small_model("64,64");
  FlatParameters parameters_{*model_, at::kFloat};
  double now_ = 100;
  int number_ = 0;
  MeasuredGradients gradients_{
      1,
      {.now_s = [this] { return now_; },
       .rounding_s = [this](WireType type) { return machine_.rounding_s[type == WireType::int8 ? 2 : 1]; }}};
};

constexpr int kTrial = static_cast<int>(MeasuredGradients::kPlainSteps) + 1;  // its number, from 1

TEST(MeasuredGradientsTest, EachBucketKeepsAFormThatWasFasterWhenItWasTried) {
  // 4 s for the first bucket, 12 for the second one.
  Training training({.byte_s = 1.0 / 1024, .rounding_s = {0, 1e-3, 1e-3}});
  for (int number = 1; number <= kTrial + 5; ++number) {
    training.step();
    EXPECT_EQ(training.form(0), number < kTrial ? 0U : 2U);
    EXPECT_EQ(training.form(1), number < kTrial ? 0U : 2U);
  }
  ASSERT_EQ(training.all_news.size(), 1U);
  EXPECT_THAT(training.all_news.front(), HasSubstr("int8 for 0.0164 MB (8158 ms instead of 1.6e+04)"));
  EXPECT_EQ(training.group.sums, 2);
}

TEST(MeasuredGradientsTest, AFormThatCannotPayIsNotTried) {
  Training training({.byte_s = 1.0 / 1024, .rounding_s = {0, 4e-3, 4e-3}});
  for (int number = 1; number <= 20; ++number) {
    training.step();
    EXPECT_EQ(training.form(0) + training.form(1), 0U);
  }
  EXPECT_EQ(training.group.sums, 1);
  ASSERT_EQ(training.all_news.size(), 1U);
  EXPECT_THAT(training.all_news.front(), HasSubstr("none for 0.0164 MB"));
}

TEST(MeasuredGradientsTest, AFormThatDoesNotPayIsTriedOnce) {
  // Links are slow by their latency alone, which fewer bytes do not change.
  Training training({.latency_s = 1, .rounding_s = {0, 1e-4, 1e-4}});
  for (int number = 1; number <= 20; ++number) {
    training.step();
    EXPECT_EQ(training.form(0), number == kTrial ? 2U : 0U) << number;
  }
}

TEST(MeasuredGradientsTest, MessagesThatHideBehindComputingNeedNoRounding) {
  Training training({.compute_s = 30, .byte_s = 1.0 / 1024, .rounding_s = {0, 1e-3, 1e-3}, .hidden = 1});
  for (int number = 1; number <= 20; ++number) {
    training.step();
    EXPECT_EQ(training.form(1), number == kTrial ? 2U : 0U) << number;
  }
}

TEST(MeasuredGradientsTest, AllGoByTheSlowestRank) {
  const Machine machine{.byte_s = 1.0 / 1024, .rounding_s = {0, 1e-3, 1e-3}};
  Training as_it_is(machine);
  for (int number = 1; number < kTrial; ++number) as_it_is.step();
  as_it_is.group.others = {0, 100, 100};  // elsewhere rounding takes long for the first bucket
  as_it_is.step();
  EXPECT_EQ(as_it_is.form(0), 0U);
  EXPECT_EQ(as_it_is.form(1), 2U);
  as_it_is.group.others = {0, 100};  // and for the second one it did
  as_it_is.step();
  EXPECT_EQ(as_it_is.form(1), 0U);
}

TEST(MeasuredGradientsTest, ASlowPlainStepDecidesNothing) {
  Training training({.byte_s = 1e-6, .rounding_s = {0, 1e-5, 1e-5}});
  for (int number = 1; number <= 20; ++number) {
    training.machine().latency_s = number == 1 || number == 3 ? 100 : 0;
    training.step();
    EXPECT_EQ(training.form(0), 0U) << number;
  }
}

TEST(MeasuredGradientsTest, TheChoiceIsMadeAnewWhereTheLinkHasChanged) {
  Training training({.byte_s = 1.0 / 1024, .rounding_s = {0, 1e-3, 1e-3}});
  const auto period = static_cast<int>(MeasuredGradients::kPeriod);
  for (int number = 1; number <= 3 * period; ++number) {
    training.machine().byte_s = number > period ? 1e-6 : 1.0 / 1024;
    training.step();
    EXPECT_EQ(training.form(0), number < kTrial || number > period ? 0U : 2U) << number;
  }
  EXPECT_EQ(training.all_news.size(), 2U) << "the third choice changes nothing";
}

// Runs of 100 steps and more, on machines of all kinds, with all that the choice takes.
TEST(MeasuredGradientsBoundTest, ARunIsNeverMoreThanAFiftiethSlowerThanWithoutCompression) {
  std::mt19937 chance(4711);
  const auto drawn = [&](double least, double most) {  // evenly in its logarithm
    return least * std::pow(most / least, std::uniform_real_distribution(0.0, 1.0)(chance));
  };
  int gained = 0;
  int slower = 0;
  double worst = 0;
  for (int number = 0; number < 1000; ++number) {
    Machine machine{.values = {},
                    .compute_s = drawn(0.4e-3, 0.5),
                    .latency_s = number % 5 == 0 ? 0 : drawn(1e-6, 20e-3),
                    .byte_s = number % 7 == 0 ? 0 : 8 / drawn(0.05e9, 400e9),
                    .hidden = number % 3 == 0 ? drawn(0.05, 1) : 0,
                    .virtual_clock = number % 3 == 1,
                    .noise = number % 2 == 0 ? 0.05 : 0};
    const double rounding = drawn(20e-12, 5000e-12) * sizeof(float);  // 20 to 5000 us for a MB
    machine.rounding_s = {0, rounding, machine.virtual_clock ? rounding : rounding * drawn(0.5, 2)};
    const auto buckets = static_cast<int>(drawn(1, 9));
    for (int bucket = 0; bucket < buckets; ++bucket)
      machine.values.push_back(256 * static_cast<std::size_t>(drawn(1, 20'000)));
    double plain = 0;
    for (const auto values : machine.values) plain += machine.message_s(values * sizeof(float));
    plain =
        machine.compute_s + std::max(0.0, plain - machine.hidden * machine.compute_s) + machine.message_s(64);
    const int steps = number % 4 == 0 ? 1100 : 100;
    Training training(std::move(machine));
    for (int step = 0; step < steps; ++step) training.step();
    const double ratio = training.taken_s / (steps * plain);
    EXPECT_LE(ratio, 1.02) << "machine " << number;
    worst = std::max(worst, ratio);
    slower += ratio > 1.005 ? 1 : 0;
    gained += ratio < 0.8 ? 1 : 0;
  }
  EXPECT_GT(worst, 1.001) << "none was hard";
  EXPECT_GT(slower, 10);
  EXPECT_GT(gained, 100) << "it compresses where it pays";
}

}  // namespace
}  // namespace dtrain::parallel
