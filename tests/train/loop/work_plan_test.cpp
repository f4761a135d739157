#include "train/loop/work_plan.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "data/sampler.hpp"
#include "train/loop/planned_batches.hpp"

namespace dtrain::train {
namespace {

constexpr std::int64_t kSamples = 103;  // four steps: three of 30, the last of 13

WorkPlan::Facts facts(int data_rank = 0, int data_ranks = 1) {
  return {.pieces = {.samples = kSamples, .global_batch = 30, .micro_batches = 8, .data_ranks = data_ranks},
          .data_rank = data_rank,
          .schedule = {.name = "linear", .learning_rate = 0.5},
          .total_steps = 8,
          .seed = 3};
}

std::vector<parallel::StepPlan> all_of(WorkPlan& plan) {
  std::vector<parallel::StepPlan> steps;
  while (const auto* next = plan.next()) steps.push_back(*next);
  return steps;
}

TEST(WorkPlanTest, EachSampleOfAnEpochIsHandedOutOnceOverAllRanks) {
  std::vector<std::int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    WorkPlan plan(facts(rank, 3));
    plan.begin_epoch(2, 0);
    const auto steps = all_of(plan);
    ASSERT_EQ(steps.size(), 4U);
    EXPECT_EQ(steps.front().number, 5) << "the second epoch's first step";
    for (const auto& step : steps) {
      for (const auto& micro_batch : step.micro_batches)
        seen.insert(seen.end(), micro_batch.ids.begin(), micro_batch.ids.end());
    }
  }
  std::ranges::sort(seen);
  std::vector<std::int64_t> once(kSamples);
  std::iota(once.begin(), once.end(), 0);
  EXPECT_EQ(seen, once);
}

TEST(WorkPlanTest, AnEpochIsARoundWhereTheSamplesBelongToClients) {
  auto of_clients = facts();
  of_clients.pieces.global_batch = kSamples;
  of_clients.round = [](std::int64_t round) {
    parallel::StepPlan plan;
    plan.micro_batches = {{.index = 7, .ids = {round, 2 * round}},
                          {.index = 8, .ids = {3}},
                          {.index = 9, .ids = {}},  // a local step that draws no record reads nothing
                          {.index = 10, .ids = {4}},
                          {.index = 11, .ids = {}}};
    plan.round = std::make_shared<const parallel::RoundPlan>(parallel::RoundPlan{.sampled = 2});
    return plan;
  };
  WorkPlan plan(of_clients);
  for (const int epoch : {1, 5}) {
    plan.begin_epoch(epoch, 0);
    auto stream = plan.requests();
    data::PieceRequest request;
    for (const int index : {7, 8, 10}) {
      ASSERT_TRUE(stream(request));
      EXPECT_EQ(request.micro_batch, index);
      EXPECT_EQ(request.step, epoch - 1);
    }
    EXPECT_FALSE(stream(request));
    const auto steps = all_of(plan);
    ASSERT_EQ(steps.size(), 1U);
    EXPECT_EQ(steps[0].number, epoch);
    EXPECT_TRUE(steps[0].pauses);
    EXPECT_EQ(steps[0].round->sampled, 2);
    EXPECT_EQ(steps[0].micro_batches.size(), 5U);
    EXPECT_EQ(steps[0].micro_batches.at(0).ids, (std::vector<std::int64_t>{epoch, 2 * epoch}));
    EXPECT_DOUBLE_EQ(steps[0].learning_rate, epoch == 1 ? 0.5 : 0.5 * 4 / 8);
  }
}

TEST(WorkPlanTest, AStepHasTheSameMicroBatchesOnAnyNumberOfRanks) {
  WorkPlan one(facts());
  one.begin_epoch(1, 0);
  const auto whole = all_of(one);
  for (int rank = 0; rank < 2; ++rank) {
    WorkPlan plan(facts(rank, 2));
    plan.begin_epoch(1, 0);
    for (const auto& step : all_of(plan)) {
      const auto& of_one = whole.at(static_cast<std::size_t>(step.number - 1));
      EXPECT_EQ(step.learning_rate, of_one.learning_rate);
      for (const auto& micro_batch : step.micro_batches) {
        EXPECT_EQ(micro_batch.ids, of_one.micro_batches.at(micro_batch.index).ids);
      }
    }
  }
}

TEST(WorkPlanTest, ARunThatGoesOnFindsTheRestOfTheEpoch) {
  WorkPlan whole(facts());
  whole.begin_epoch(1, 0);
  const auto all = all_of(whole);
  WorkPlan rest(facts());
  rest.begin_epoch(1, 2);
  const auto steps = all_of(rest);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].number, 3);
  EXPECT_EQ(steps[0].micro_batches.at(5).ids, all.at(2).micro_batches.at(5).ids);
  EXPECT_EQ(rest.steps(), 4);
}

/// Ids by step and micro-batch.
std::map<std::pair<std::int64_t, std::uint32_t>, std::vector<std::int64_t>> by_place(
    const std::vector<parallel::StepPlan>& steps) {
  std::map<std::pair<std::int64_t, std::uint32_t>, std::vector<std::int64_t>> all;
  for (const auto& step : steps) {
    for (const auto& micro_batch : step.micro_batches)
      all[{step.number, micro_batch.index}] = micro_batch.ids;
  }
  return all;
}

TEST(WorkPlanTest, MicroBatchesOfLaterStepsCanBeOwnedOtherwise) {
  WorkPlan one(facts());
  one.begin_epoch(1, 0);
  const auto whole = by_place(all_of(one));
  std::map<std::pair<std::int64_t, std::uint32_t>, std::vector<std::int64_t>> seen;
  for (int rank = 0; rank < 2; ++rank) {
    WorkPlan plan(facts(rank, 2));
    plan.begin_epoch(1, 0);
    const auto* first = plan.next();
    ASSERT_EQ(first->micro_batches.size(), 4U);
    EXPECT_EQ(first->owned, nullptr);
    plan.own(3, {{0, 7}, {7, 8}});
    EXPECT_EQ(first->micro_batches.size(), 4U) << "the step under way stays as it is";
    auto steps = all_of(plan);
    steps.insert(steps.begin(), *first);
    EXPECT_EQ(steps[1].micro_batches.size(), 4U);
    EXPECT_EQ(steps[2].micro_batches.size(), rank == 0 ? 7U : 1U);
    ASSERT_NE(steps[3].owned, nullptr);
    EXPECT_EQ(steps[3].owned->at(1).begin, 7);
    EXPECT_TRUE(steps[3].pauses);
    seen.merge(by_place(steps));
    plan.begin_epoch(2, 0);
    EXPECT_EQ(plan.next()->micro_batches.size(), rank == 0 ? 7U : 1U) << "until another call";
  }
  EXPECT_EQ(seen, whole) << "the same samples in the same micro-batches, each once";
}

TEST(WorkPlanTest, AStepOfSeveralBatchesHasTheirMicroBatches) {
  auto pausing = facts();
  pausing.pauses_after = [](std::int64_t step) { return step == 5; };
  WorkPlan one(pausing);
  one.begin_epoch(2, 0);
  const auto single = all_of(one);
  WorkPlan plan(pausing);
  plan.begin_epoch(2, 0, {.batches = 2, .rate = 3});
  const auto steps = all_of(plan);
  ASSERT_EQ(steps.size(), 3U) << "the epoch's first step pauses: two batches follow, then the last one";
  EXPECT_EQ(steps[0].number, 5);
  EXPECT_EQ(steps[1].number, 7) << "that of its last batch";
  EXPECT_EQ(steps[2].number, 8);
  EXPECT_EQ(steps[1].micro_batches.size(), 16U);
  EXPECT_DOUBLE_EQ(steps[1].learning_rate, 3 * single[2].learning_rate);
  for (std::size_t m = 0; m < 16; ++m) {
    EXPECT_EQ(steps[1].micro_batches[m].index, m);
    EXPECT_EQ(steps[1].micro_batches[m].ids, single[1 + m / 8].micro_batches[m % 8].ids);
  }
  auto requests = plan.requests();
  data::PieceRequest request;
  for (int k = 0; k < 8 + 9; ++k) ASSERT_TRUE(requests(request));
  EXPECT_EQ(request.step, 6);
  EXPECT_EQ(request.micro_batch, 8);
  EXPECT_EQ(request.samples, single[2].micro_batches[0].ids);
}

TEST(WorkPlanTest, WhatIsBegunCannotBeOwnedOtherwise) {
  WorkPlan plan(facts(0, 2));
  plan.begin_epoch(1, 0);
  plan.next();
  EXPECT_THROW(plan.own(1, {{0, 7}, {7, 8}}), Error);
  auto requests = plan.requests();
  data::PieceRequest request;
  for (int k = 0; k < 5; ++k) ASSERT_TRUE(requests(request));
  EXPECT_EQ(request.step, 1) << "a loader has come to the second step";
  EXPECT_THROW(plan.own(2, {{0, 7}, {7, 8}}), Error);
  plan.own(3, {{0, 1}, {1, 8}});
  for (int k = 0; k < 4; ++k) ASSERT_TRUE(requests(request));
  EXPECT_EQ(request.step, 2);
  EXPECT_EQ(request.micro_batch, 0);
  ASSERT_TRUE(requests(request));
  EXPECT_EQ(request.step, 3) << "one micro-batch of the third step is this rank's";
}

TEST(WorkPlanTest, EndsWithTheRun) {
  auto six = facts();
  six.total_steps = 6;
  WorkPlan plan(six);
  plan.begin_epoch(2, 0);
  EXPECT_EQ(all_of(plan).size(), 2U);
  EXPECT_EQ(plan.next(), nullptr);
}

TEST(WorkPlanTest, NothingIsReadAheadAcrossAPauseOrTheEnd) {
  auto pausing = facts();
  pausing.pauses_after = [](std::int64_t step) { return step == 2; };
  WorkPlan plan(pausing);
  plan.begin_epoch(1, 0);
  std::vector<bool> follows;
  std::vector<bool> pauses;
  for (const auto& step : all_of(plan)) {
    follows.push_back(step.another_follows);
    pauses.push_back(step.pauses);
  }
  EXPECT_EQ(follows, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(pauses, (std::vector<bool>{false, true, false, true}));  // also where the epoch ends
}

TEST(WorkPlanTest, DrawnStepsHaveTheSamplesThatWereDrawnOverAllRanks) {
  const std::vector<std::vector<std::int64_t>> drawn = {
      {1, 5, 7, 80, 90}, {}, {2}, {2, 5, 6, 7, 8, 9, 10, 11, 12}};
  std::vector<std::vector<std::int64_t>> seen(4);
  for (int rank = 0; rank < 3; ++rank) {
    auto drawing = facts(rank, 3);
    drawing.draws = [&](int epoch) {
      EXPECT_EQ(epoch, 2);
      return drawn;
    };
    WorkPlan plan(std::move(drawing));
    plan.begin_epoch(2, 0);
    const auto steps = all_of(plan);
    ASSERT_EQ(steps.size(), 4U) << "also those that drew nothing";
    for (std::size_t s = 0; s < steps.size(); ++s) {
      for (const auto& micro_batch : steps[s].micro_batches)
        seen[s].insert(seen[s].end(), micro_batch.ids.begin(), micro_batch.ids.end());
    }
    std::uint64_t expected = 0;
    for (std::int64_t done = 0; done <= 4; ++done) {
      EXPECT_EQ(plan.hash_of_first(done), expected) << done;
      if (done < 4) expected += data::sample_hash(drawn[static_cast<std::size_t>(done)]);
    }
  }
  EXPECT_EQ(seen, drawn);
}

TEST(WorkPlanTest, ARoundsHashIsOfAllRanksClients) {
  const auto local = [](std::vector<std::int64_t> ids) {
    return parallel::MicroBatch{.index = 0, .ids = std::move(ids)};
  };
  WorkPlan plan(
      {.pieces = {.samples = 9, .global_batch = 9, .micro_batches = 1},
       .total_steps = 3,
       .round =
           [&](std::int64_t round) {
             parallel::StepPlan own{.number = round};
             own.micro_batches = {local({round})};
             return own;
           },
       .whole_round =
           [&](std::int64_t round) {
             parallel::StepPlan all{.number = round};
             all.micro_batches = {local({round}), local({7, 8}), local({7, 8})};  // two local epochs
             return all;
           }});
  plan.begin_epoch(2, 0);
  EXPECT_EQ(plan.hash_of_first(0), 0U);
  EXPECT_EQ(plan.hash_of_first(1), data::sample_hash(std::vector<std::int64_t>{2, 7, 8, 7, 8}));
}

TEST(WorkPlanTest, PiecesWithoutSamplesAreLeftOut) {
  WorkPlan plan({.pieces = {.samples = 2, .global_batch = 2, .micro_batches = 4}, .total_steps = 1});
  plan.begin_epoch(1, 0);
  const auto steps = all_of(plan);
  ASSERT_EQ(steps.size(), 1U);
  ASSERT_EQ(steps[0].micro_batches.size(), 2U);
  for (const auto& micro_batch : steps[0].micro_batches) EXPECT_EQ(micro_batch.samples(), 1);
  EXPECT_NE(steps[0].micro_batches[0].index, steps[0].micro_batches[1].index);
}

/// Hands out what the plan asks for, as data::Loader does, except for what a test changes.
class FakeLoader {
 public:
  explicit FakeLoader(const WorkPlan& plan) {
    auto requests = plan.requests();
    data::PieceRequest request;
    while (requests(request)) {
      batches.push_back(
          {.step = request.step, .micro_batch = request.micro_batch, .samples = request.samples});
    }
  }
  data::Batch next() { return batches.at(next_++); }
  std::vector<data::Batch> batches;

 private:
  std::size_t next_ = 0;
};

/// The sum of a batch's ids stands for its inputs.
parallel::Samples prepared(const data::Batch& batch) {
  return {.inputs = {at::scalar_tensor(std::accumulate(batch.samples.begin(), batch.samples.end(), 0.0))},
          .targets = {}};
}

double sum_of(const parallel::MicroBatch& micro_batch) {
  return static_cast<double>(
      std::accumulate(micro_batch.ids.begin(), micro_batch.ids.end(), std::int64_t{0}));
}

class PlannedBatchesTest : public testing::Test {
 protected:
  PlannedBatchesTest() { plan_.begin_epoch(1, 0); }
  NullSpanSink sink_;
  WorkPlan plan_{facts()};
};

TEST_F(PlannedBatchesTest, BringWhatThePlanSays) {
  FakeLoader loader(plan_);
  PlannedBatches batches([&] { return loader.next(); }, prepared, sink_);
  for (const auto& step : all_of(plan_)) {
    for (std::size_t m = 0; m < step.micro_batches.size(); ++m) {
      EXPECT_EQ(batches.take(step, m).inputs.at(0).item<double>(), sum_of(step.micro_batches[m]));
    }
  }
}

TEST_F(PlannedBatchesTest, WhatIsReadAheadIsTakenLater) {
  FakeLoader loader(plan_);
  PlannedBatches batches([&] { return loader.next(); }, prepared, sink_);
  const auto steps = all_of(plan_);
  batches.read_ahead();
  const auto ahead = batches.look_ahead(steps[0]);
  ASSERT_EQ(ahead.size(), steps[0].micro_batches.size());
  for (std::size_t m = 0; m < ahead.size(); ++m) {
    EXPECT_TRUE(batches.take(steps[0], m).inputs.at(0).is_same(ahead[m].inputs.at(0)));
  }
  batches.read_ahead();
  EXPECT_EQ(batches.take(steps[1], 0).inputs.at(0).item<double>(), sum_of(steps[1].micro_batches[0]));
}

TEST_F(PlannedBatchesTest, AnotherBatchThanPlannedIsAnError) {
  const auto step = all_of(plan_).front();
  const auto refused = [&](const auto& change, const std::string& words) {
    FakeLoader loader(plan_);
    change(loader.batches);
    PlannedBatches batches([&] { return loader.next(); }, prepared, sink_);
    try {
      batches.take(step, 0);
      ADD_FAILURE() << "taken: " << words;
    } catch (const Error& error) {
      EXPECT_NE(error.problem().find(words), std::string::npos) << error.what();
      EXPECT_EQ(error.subject(), "the loader");
    }
  };
  refused([](auto& batches) { std::swap(batches[0], batches[1]); }, "micro-batch 1; the plan wants");
  refused([](auto& batches) { batches[0].step = 1; }, "samples of step 2, micro-batch 0");
  refused([](auto& batches) { ++batches[0].samples[2]; }, "other samples of step 1");
  refused([](auto& batches) { batches[0].samples.pop_back(); }, "other samples of step 1");
}

TEST_F(PlannedBatchesTest, AMicroBatchBeyondThePlanIsAnError) {
  FakeLoader loader(plan_);
  PlannedBatches batches([&] { return loader.next(); }, prepared, sink_);
  const auto step = all_of(plan_).front();
  for (std::size_t m = 0; m < step.micro_batches.size(); ++m) batches.take(step, m);
  EXPECT_THROW(batches.take(step, step.micro_batches.size()), Error);
}

TEST_F(PlannedBatchesTest, ANewListForgetsWhatWasReadAhead) {
  FakeLoader first(plan_);
  FakeLoader second(plan_);
  bool in_second = false;
  PlannedBatches batches([&] { return in_second ? second.next() : first.next(); }, prepared, sink_);
  batches.read_ahead();
  in_second = true;
  batches.begin();
  const auto step = all_of(plan_).front();
  EXPECT_NO_THROW(batches.take(step, 0));
  EXPECT_NO_THROW(batches.take(step, 1));
}

}  // namespace
}  // namespace dtrain::train
