#include "parallel/strategy/late_parts.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/strategy/job_of_rounds.hpp"
#include "parallel/strategy/local_sgd.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kRounding = 1e-12;  // of doubles near 1, over some tens of operations
constexpr double kOuterRate = 0.7;
constexpr double kOuterMomentum = 0.9;

optim::OptimizerConfig sgd(double momentum = 0) { return {.name = "sgd", .momentum = momentum}; }

StrategyOptions late(int steps, int fragments = 2) {
  return {.sync_period = "4",
          .outer_optimizer = "nesterov",
          .outer_learning_rate = kOuterRate,
          .outer_momentum = kOuterMomentum,
          .fragments = fragments,
          .overlap_steps = steps};
}

/// A part of all copies, computed on each rank: copy r descends to r + 1, and means arrive late.
class AllCopies {
 public:
  AllCopies(const at::Tensor& start, int copies)
      : values_(static_cast<std::size_t>(copies), start), agreed_(start), momentum_(at::zeros_like(start)) {}

  void step(double rate) {
    for (std::size_t copy = 0; copy < values_.size(); ++copy) {
      values_[copy] = values_[copy] + rate * (static_cast<double>(copy) + 1 - values_[copy]);
    }
  }
  void send() {
    auto sum = at::zeros_like(agreed_);
    for (const auto& value : values_) sum = sum + value;
    sent_.push_back(sum / static_cast<double>(values_.size()));
  }
  /// `own`: what a copy keeps of its values.
  void arrive(double own = 0.5) {
    const auto difference = agreed_ - sent_.front();
    sent_.pop_front();
    momentum_ = kOuterMomentum * momentum_ + difference;
    agreed_ = agreed_ - kOuterRate * (difference + kOuterMomentum * momentum_);
    for (auto& value : values_) value = own * value + (1 - own) * agreed_;
  }
  const at::Tensor& of(int copy) const { return values_[static_cast<std::size_t>(copy)]; }
  const at::Tensor& agreed() const { return agreed_; }

 private:
  std::vector<at::Tensor> values_;
  at::Tensor agreed_;
  at::Tensor momentum_;
  std::deque<at::Tensor> sent_;
};

/// Whether an element is in the part that is sent in the middle of a round of two parts.
at::Tensor in_first_part(models::Model& model) {
  auto same = small_model();
  const FlatParameters parameters(*same, at::kDouble);
  const auto part = Fragments(parameters, 2).part(0);
  std::vector<at::Tensor> all;
  for (const auto* parameter : model.parameters()) {
    bool is_in = false;
    for (const auto& entry : parameters.entries())
      is_in |= entry.parameter->name == parameter->name && entry.offset < part.end;
    all.push_back(at::full({parameter->value.numel()}, is_in, at::kBool));
  }
  return at::cat(all);
}

class LateStepsTest : public testing::TestWithParam<int> {};

TEST_P(LateStepsTest, APartArrivesSoManyStepsAfterItWasSent) {
  const int delay = GetParam();
  JobOfRounds job;
  LocalSgd strategy(job.parts(late(delay), sgd()));
  const auto first = in_first_part(job.model());
  job.engine.target = job.rank() + 1.0;
  AllCopies middle(job.weights(), job.copies());  // sent in the middle of a round
  AllCopies end(job.weights(), job.copies());     // sent at its end
  for (std::int64_t number = 1; number <= 16; ++number) {
    const bool pauses = number == 16;
    EXPECT_EQ(job.step(strategy, number, pauses).agreed, number % 4 == 0);
    for (auto* part : {&middle, &end}) part->step(job.rate);
    if (number > 2 && (number - 2 - delay) % 4 == 0 && number - delay >= 2) middle.arrive();
    if ((number - delay) % 4 == 0 && number - delay >= 4) end.arrive();
    if (number % 4 == 2) middle.send();
    if (number % 4 == 0) end.send();
    if (pauses) {
      if (delay > 2) middle.arrive();  // sent at step 14
      end.arrive(0);                   // just sent: the copies have come to nothing else since
    }
    EXPECT_LT(distance(job.weights(), at::where(first, middle.of(job.rank()), end.of(job.rank()))), kRounding)
        << number;
    if (number != 8 && !pauses) continue;
    strategy.synchronise();
    EXPECT_LT(distance(job.weights(), at::where(first, middle.agreed(), end.agreed())), kRounding) << number;
    EXPECT_NO_THROW(strategy.compare_copies(number));
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, LateStepsTest, testing::Values(1, 2, 3));

TEST(LatePartsTest, WhenAPartArrivesIsNotUpToTheClockNorToWhatMovesTheQueue) {
  const auto train = [](bool slow, comm::Drive drive) {
    JobOfRounds job(small_model(), drive);
    LocalSgd strategy(job.parts(late(2, 4), sgd()));
    job.engine.target = job.rank() + 1.0;
    for (std::int64_t number = 1; number <= 13; ++number) {
      if (slow) std::this_thread::sleep_for(std::chrono::milliseconds((7 * number + 5 * job.rank()) % 11));
      job.step(strategy, number, number == 13);
    }
    return job.weights();
  };
  const auto expected = train(false, comm::Drive::inline_);
  EXPECT_TRUE(at::equal(expected, train(true, comm::Drive::inline_)));
  EXPECT_TRUE(at::equal(expected, train(true, comm::Drive::thread)));
}

class LateTypesTest : public testing::TestWithParam<std::string> {};

TEST_P(LateTypesTest, WhatIsOnItsWayIsSavedAndArrivesAfterwards) {
  JobOfRounds undisturbed;
  JobOfRounds whole;
  JobOfRounds again;
  auto options = late(3, 3);
  options.exchange_type = GetParam();
  LocalSgd usual(undisturbed.parts(options, sgd(0.5)));
  LocalSgd first(whole.parts(options, sgd(0.5)));
  LocalSgd second(again.parts(options, sgd(0.5)));
  for (auto* job : {&undisturbed, &whole, &again}) job->engine.target = job->rank() + 1.0;
  for (std::int64_t number = 1; number <= 8; ++number) {
    whole.step(first, number);
    undisturbed.step(usual, number);
  }
  first.synchronise();
  second.synchronise();
  const auto saved = first.state().tensors();
  const auto places = second.state().tensors();
  ASSERT_EQ(saved.size(), places.size());
  double on_the_way = 0;
  for (const bool optimizer : {false, true}) {  // as a resumed run reads them
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      auto place = places[i].value;
      if (saved[i].is_of_optimizer() == optimizer) place.copy_(saved[i].value);
      if (saved[i].group == "optimizer/late_steps") on_the_way += saved[i].value.sum().item<double>();
    }
    optimizer ? second.adopt_optimizer() : second.adopt_weights();
  }
  EXPECT_GT(on_the_way, 0);
  for (std::int64_t number = 9; number <= 15; ++number) {
    whole.step(first, number);
    again.step(second, number);
    undisturbed.step(usual, number);
    EXPECT_TRUE(at::equal(whole.weights(), again.weights())) << number;
    EXPECT_TRUE(at::equal(whole.weights(), undisturbed.weights())) << number;
  }
  first.synchronise();
  EXPECT_NO_THROW(first.compare_copies(15));
}

INSTANTIATE_TEST_SUITE_P(Types, LateTypesTest, testing::Values("full", "bfloat16", "int8"));

TEST(LatePartsTest, APartThatIsDueAgainArrivesBefore) {
  const auto train = [](int delay) {
    JobOfRounds job;
    auto options = late(delay, 1);
    options.sync_period = "adaptive";
    LocalSgd strategy(job.parts(options, sgd()));
    job.engine.target = job.rank() + 1.0;
    for (std::int64_t number = 1; number <= 2 * SyncPeriod::kFirst + 3; ++number) job.step(strategy, number);
    return job.weights();
  };
  EXPECT_TRUE(at::equal(train(40), train(SyncPeriod::kFirst)));
}

TEST(LatePartsTest, CopiesWithoutSamplesLeaveTheAgreedValues) {
  JobOfRounds job;
  LocalSgd strategy(job.parts(late(1), sgd()));
  const auto start = job.weights();
  for (std::int64_t number = 1; number <= 4; ++number)
    job.step(strategy, number, number == 4, JobOfRounds::Work::none);
  EXPECT_LT(distance(job.weights(), start), kRounding);
}

// Leaves messages behind: the last test of its program.
TEST(LatePartsTest, WhatIsStillOnItsWayAtTheEndIsGivenUp) {
  JobOfRounds job;
  {
    LocalSgd strategy(job.parts(late(3), sgd()));
    for (std::int64_t number = 1; number <= 2; ++number) job.step(strategy, number);
  }
  EXPECT_EQ(job.queue().failed(), job.copies() > 1);
}

}  // namespace
}  // namespace dtrain::parallel
