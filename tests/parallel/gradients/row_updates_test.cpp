#include "parallel/gradients/row_updates.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/slice.hpp"
#include "parallel/gradients/gradient_buckets.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/memory/node_memory.hpp"
#include "parallel/pipeline/segments.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kWords = 300;
constexpr std::int64_t kSamples = 11;
constexpr std::int64_t kTokens = 7;
constexpr int kPieces = 5;
constexpr int kSteps = 20;

std::unique_ptr<models::Model> bag_of_words() {
  auto model = models::find_model("nbow").make(
      {.task = "text_classification", .sample_shape = {kTokens}, .classes = 3, .vocabulary = kWords},
      {{"embedding", "10"}});
  model->to(at::kDouble, at::kCPU);
  model->initialise(7);
  return model;
}

struct Batch {
  at::Tensor ids;      // int32 [kSamples, kTokens], padded at the end
  at::Tensor targets;  // int64 [kSamples]
};

/// Common words in each step, rare ones after long gaps, and most never. The same on every rank.
Batch batch_of(int step) {
  at::manual_seed(step);
  const at::Tensor common = at::randint(1, 9, {kSamples, kTokens}, at::kInt);
  const at::Tensor rare = at::randint(1, kWords, {kSamples, kTokens}, at::kInt);
  Batch batch{at::where(at::rand({kSamples, kTokens}).lt(0.8), common, rare),
              at::randint(3, {kSamples}, at::kLong)};
  for (std::int64_t i = 0; i < kSamples; ++i) batch.ids[i].narrow(0, kTokens - i % 4, i % 4).zero_();
  return batch;
}

double rate_of(int step) { return 0.01 * (1.0 + 0.2 * step); }

std::vector<optim::ParameterRange> ranges_of(const FlatParameters& parameters, double weight_decay,
                                             const models::Parameter* without) {
  std::vector<optim::ParameterRange> ranges;
  for (const auto& entry : parameters.entries()) {
    if (entry.parameter != without)
      ranges.push_back({entry.offset, entry.offset + entry.count, weight_decay});
  }
  return ranges;
}

/// What is left after all steps by one rank with whole batches and dense gradients.
struct Expected {
  at::Tensor values;
  std::vector<at::Tensor> moments;
  std::vector<double> squares;  // of the summed gradient, per step
};

Expected dense(const optim::OptimizerConfig& config) {
  const auto model = bag_of_words();
  FlatParameters parameters(*model, at::kDouble);
  const auto optimizer =
      optim::make_optimizer(config, parameters.size(), ranges_of(parameters, config.weight_decay, nullptr),
                            parameters.values().options());
  const auto walk = whole_walk(*model);
  Expected expected;
  for (int step = 1; step <= kSteps; ++step) {
    const Batch batch = batch_of(step);
    for (const auto& entry : parameters.entries()) entry.parameter->value.mutable_grad().reset();
    forward_and_back(*model, walk, batch.ids, batch.targets);
    auto gradient = at::zeros_like(parameters.values());
    for (const auto& entry : parameters.entries()) {
      FlatParameters::view(gradient, entry).copy_(entry.parameter->value.grad());
    }
    expected.squares.push_back(gradient.square().sum().item<double>());
    optimizer->step(parameters.values(), gradient, 1.0 / kSamples, rate_of(step), step);
  }
  expected.values = parameters.values().clone();
  for (const auto& state : optimizer->state()) expected.moments.push_back(state.value.clone());
  return expected;
}

double gap(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

/// The same steps by all ranks of the job, the embedding by rows.
void expect_same(const optim::OptimizerConfig& config, RowUpdates::Copies wanted) {
  JobOfTest job;
  auto& group = job.data();
  const auto expected = dense(config);
  const auto model = bag_of_words();
  NodeMemory memory(group, 3 * FlatParameters::size_of(*model), at::kDouble);
  const bool shared = wanted == RowUpdates::Copies::one && memory.shared();
  const auto take = [&](std::int64_t count) {
    return shared ? memory.take(count) : at::zeros({count}, at::kDouble);
  };
  const bool puts = !shared || memory.fills();
  FlatParameters parameters(*model, take(FlatParameters::size_of(*model)),
                            puts ? FlatParameters::Values::put : FlatParameters::Values::take);
  group.barrier().wait();
  const auto& entry = parameters.entries().back();
  ASSERT_EQ(entry.parameter->name, "embedding.weight");
  const auto optimizer = optim::make_optimizer(config, parameters.size(),
                                               ranges_of(parameters, config.weight_decay, entry.parameter),
                                               parameters.values().options(), take);
  RowUpdates rows(parameters, entry, group, *optimizer, config,
                  shared ? RowUpdates::Copies::one : RowUpdates::Copies::each,
                  {.samples = kSamples, .tokens = kTokens});
  const auto update = shared ? BucketConfig::Update::parts : BucketConfig::Update::everything;
  GradientBuckets buckets(parameters, group, job.queue(), {.update = update}, {.left_out = entry.parameter});
  const auto walk = whole_walk(*model);
  const Range mine = part_of(kPieces, group.rank(), group.size());
  for (int step = 1; step <= kSteps; ++step) {
    const Batch batch = batch_of(step);
    std::vector<Batch> pieces;
    std::vector<at::Tensor> ids;
    for (auto k = mine.begin; k < mine.end; ++k) {
      const Range part = part_of(kSamples, k, kPieces);
      pieces.push_back(
          {batch.ids.narrow(0, part.begin, part.size()), batch.targets.narrow(0, part.begin, part.size())});
      ids.push_back(pieces.back().ids);
    }
    double squares = 0.0;
    const auto compute = [&] {
      buckets.begin_step(static_cast<int>(mine.size()));
      rows.begin_step(ids);
      for (const Batch& piece : pieces) forward_and_back(*model, walk, piece.ids, piece.targets);
      rows.finish();
      buckets.finish();
      squares = rows.squares().sum;
      for (const Range& part : buckets.own_parts()) {
        squares += buckets.gradients().narrow(0, part.begin, part.size()).square().sum().item<double>();
      }
      group.all_reduce(comm::Buffer::of(std::span(&squares, 1)), comm::ReduceOp::sum).wait();
    };
    if (step == 7) compute();  // a step that is left out: no update follows
    compute();
    EXPECT_NEAR(squares, expected.squares[static_cast<std::size_t>(step - 1)], 1e-9 * squares) << step;
    rows.update(1.0 / kSamples, rate_of(step), step);
    optimizer->step(parameters.values(), buckets.gradients(), 1.0 / kSamples, rate_of(step), step,
                    buckets.update_parts());
    group.barrier().wait();
    if (step == kSteps / 2) rows.flush();  // as for an evaluation half-way
  }
  rows.flush();
  EXPECT_LT(gap(parameters.values(), expected.values), 1e-9);
  for (std::size_t i = 0; i < expected.moments.size(); ++i) {
    const auto view = [&](const at::Tensor& flat) { return FlatParameters::view(flat, entry); };
    EXPECT_LT(gap(view(optimizer->state()[i].value), view(expected.moments[i])),
              1e-9 * view(expected.moments[i]).abs().max().item<double>())
        << optimizer->state()[i].name;
  }
  group.barrier().wait();  // nobody's memory goes while others compare
}

TEST(RowUpdatesTest, EqualTheDenseExchangeAndUpdateOver20Steps) {
  for (const auto copies : {RowUpdates::Copies::one, RowUpdates::Copies::each}) {
    expect_same({.name = "adam"}, copies);
    expect_same({.name = "adamw", .weight_decay = 0.1, .beta2 = 0.99}, copies);
    // The first moment fades at once, and half as fast as that what it is divided by: rows still move.
    expect_same({.name = "adam", .beta1 = 0.01, .beta2 = 0.0004}, copies);
    expect_same({.name = "sgd"}, copies);
  }
}

TEST(RowUpdatesTest, RulesWhoseIdleRowsCannotBeMadeUpForAreNotTaken) {
  EXPECT_TRUE(RowUpdates::supports({.name = "adam"}));
  EXPECT_FALSE(RowUpdates::supports({.name = "adam", .weight_decay = 0.1}));
  EXPECT_FALSE(RowUpdates::supports({.name = "sgd", .momentum = 0.9}));
  EXPECT_FALSE(RowUpdates::supports({.name = "adamw", .beta1 = 0.95, .beta2 = 0.9}));
  EXPECT_FALSE(RowUpdates::supports({.name = "adamw", .beta1 = 0.9, .beta2 = 0.8101}));
}

}  // namespace
}  // namespace dtrain::parallel
