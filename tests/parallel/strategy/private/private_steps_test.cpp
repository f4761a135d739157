#include "parallel/strategy/private/private_steps.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "models/layers/dropout.hpp"
#include "models/layers/linear.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/plain_sum.hpp"
#include "parallel/small_model.hpp"
#include "privacy/noise.hpp"
#include "privacy/renyi.hpp"

namespace dtrain::parallel {
namespace {

/// Its parameter gets no gradient.
class Idle final : public models::Layer {
 public:
  Idle() : Layer("idle") {
    parameters_.push_back(
        {"idle.weight", at::empty({2}).requires_grad_(), {models::Initialisation::Kind::one}});
  }
  models::Tensors forward(const models::Tensors& inputs, const models::Context&) override { return inputs; }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return inputs;
  }
  models::Cost cost(const std::vector<models::Shape>&) const override { return {}; }
};

TEST(ClippedSumTest, OneRecordChangesTheSumByTheClipAtMost) {
  const auto model = small_model();
  FlatParameters parameters(*model, at::kFloat);
  ClippedSum sum(parameters, 0.3);
  SampleWalk walk(*model);
  const auto of = [&](const Samples& samples) {
    sum.begin_step();
    walk.add(samples, {}, {}, sum);
    return sum.values().clone();
  };
  auto inputs = waves({8, 12});
  inputs[7] *= 1e4;  // an outlier
  const auto targets = at::remainder(at::arange(8, at::kLong), 3);
  const auto with = of({{inputs}, targets});
  const auto without = of({{inputs.narrow(0, 0, 7)}, targets.narrow(0, 0, 7)});
  EXPECT_LE((with - without).norm().item<double>(), 0.3 * (1 + 1e-5));
}

/// Passes each micro-batch through the whole model.
class PlainEngine final : public StepEngine {
 public:
  explicit PlainEngine(models::Model& model) : model_(model) {}
  std::vector<MicroBatchLoss> compute(const StepPlan& plan, SampleSource& samples, LocalSums& sums,
                                      double) override {
    sums.begin_step(static_cast<int>(plan.micro_batches.size()));
    std::vector<MicroBatchLoss> losses;
    for (std::size_t m = 0; m < plan.micro_batches.size(); ++m) {
      auto loss = run_through(model_, samples.take(plan, m), {});
      loss.loss.backward();
      loss.loss = loss.loss.detach();
      losses.push_back({plan.micro_batches[m].index, loss, plan.micro_batches[m].samples()});
      sums.taken_back(static_cast<int>(plan.micro_batches[m].index));
    }
    return losses;
  }
  std::vector<const models::Parameter*> met_again() const override { return {}; }

 private:
  models::Model& model_;
};

/// The samples of the plan by their ids.
class ById final : public SampleSource {
 public:
  explicit ById(Samples all) : all_(std::move(all)) {}
  Samples take(const StepPlan& plan, std::size_t m) override {
    const auto ids = at::tensor(plan.micro_batches.at(m).ids, at::kLong);
    return {{all_.inputs[0].index_select(0, ids)}, all_.targets.index_select(0, ids)};
  }
  std::vector<Samples> look_ahead(const StepPlan&) override { return {}; }
  void read_ahead() override {}

 private:
  Samples all_;
};

constexpr std::int64_t kRecords = 20;

class PrivateStepsTest : public testing::Test {
 protected:
  static Setting setting_of(int ranks) {
    Setting setting;
    setting.mesh.data = ranks;
    setting.optimizer.name = "sgd";
    setting.micro_batches = ranks;
    setting.global_batch = 5;
    setting.records = kRecords;
    setting.total_steps = 40;
    setting.options.dp_clip = 0.5;
    setting.options.dp_noise = 0.7;
    setting.options.noise_source = "seeded";
    return setting;
  }

  void make(Layers layers = {}) {
    if (!layers.empty()) model_ = classifier_of(std::move(layers), 4);
    setting_.model = model_.get();
    cuts_ = cut_stages(std::vector<double>(model_->layers().size(), 1.0), 1, 1, model_->name());
    engine_ = std::make_unique<PlainEngine>(*model_);
    start_ = at::cat([&] {
      std::vector<at::Tensor> all;
      for (const auto* parameter : model_->parameters())
        all.push_back(parameter->value.detach().flatten().clone());
      return all;
    }());
    strategy_ = std::make_unique<PrivateSteps>(StrategyParts{.setting = setting_,
                                                             .world = job_.data(),
                                                             .data = job_.data(),
                                                             .pipe = job_.pipe(),
                                                             .tensor = job_.tensor(),
                                                             .queue = job_.queue(),
                                                             .model = *model_,
                                                             .cuts = cuts_,
                                                             .engine = *engine_,
                                                             .sink = job_.sink(),
                                                             .seed = seed_});
  }

  /// Samples `ids`, dealt to the ranks as evenly as can be.
  StepOutcome step(std::int64_t number, std::vector<std::int64_t> ids) {
    StepPlan plan{.number = number, .learning_rate = 0.5};
    const auto own = part_of(static_cast<std::int64_t>(ids.size()), job_.rank(), job_.data().size());
    if (own.size() > 0)
      plan.micro_batches.push_back({.index = static_cast<std::uint32_t>(job_.rank()),
                                    .ids = {ids.begin() + own.begin, ids.begin() + own.end}});
    ById source(samples_);
    return strategy_->step(plan, source);
  }

  /// What the parameters must be after step 1 with these samples, computed by a single process in plain
  /// words.
  at::Tensor expected_after(const std::vector<std::int64_t>& ids,
                            std::unique_ptr<models::Model> again) const {
    FlatParameters parameters(*again, at::kFloat);
    auto sum = at::zeros_like(parameters.values());
    if (!ids.empty()) {
      const auto places = at::tensor(ids, at::kLong);
      sum =
          plain_sum(*again, parameters,
                    {{samples_.inputs[0].index_select(0, places)}, samples_.targets.index_select(0, places)},
                    setting_.options.dp_clip)
              .sum;
    }
    auto noise = at::zeros_like(sum);
    privacy::make_noise(privacy::NoiseSource::seeded, seed_)
        ->add(std::span(noise.mutable_data_ptr<float>(), static_cast<std::size_t>(noise.numel())),
              setting_.options.dp_noise * setting_.options.dp_clip, 1, 0);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> all;
    for (const auto* parameter : again->parameters()) {
      for (const auto& entry : parameters.entries()) {
        if (entry.parameter != parameter) continue;
        const auto gradient = (FlatParameters::view(sum, entry) + FlatParameters::view(noise, entry)) / 5;
        all.push_back((parameter->value - 0.5 * gradient).flatten());
      }
    }
    return at::cat(all);
  }

  at::Tensor now() const {
    std::vector<at::Tensor> all;
    for (const auto* parameter : model_->parameters()) all.push_back(parameter->value.detach().flatten());
    return at::cat(all);
  }

  JobOfTest job_;
  Setting setting_ = setting_of(job_.data().size());
  std::unique_ptr<models::Model> model_ = small_model();
  StageCuts cuts_;
  std::unique_ptr<PlainEngine> engine_;
  Samples samples_{{waves({kRecords, 12})}, at::remainder(at::arange(kRecords, at::kLong), 3)};
  at::Tensor start_;
  std::uint64_t seed_ = 11;
  std::unique_ptr<PrivateSteps> strategy_;
};

// The same on any number of ranks: one noise, and the public batch of 5 as divisor, not the 7 that were
// drawn.
TEST_F(PrivateStepsTest, AStepIsTheClippedSumAndOneNoiseOverTheExpectedBatch) {
  make();
  const std::vector<std::int64_t> drawn = {0, 3, 4, 8, 9, 13, 19};
  const auto outcome = step(1, drawn);
  EXPECT_LT((now() - expected_after(drawn, small_model())).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(outcome.total.samples, 7);
  EXPECT_EQ(outcome.total.weight, 7);
}

TEST_F(PrivateStepsTest, AStepThatDrawsNothingAddsItsNoise) {
  make();
  const auto outcome = step(1, {});
  EXPECT_LT((now() - expected_after({}, small_model())).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(outcome.total.samples, 0);
  EXPECT_EQ(strategy_->releases(), 1) << "it counts";
}

TEST_F(PrivateStepsTest, LayersWithoutARuleGoOneByOne) {
  samples_ = {{waves({kRecords, 4})}, at::remainder(at::arange(kRecords, at::kLong), 4)};
  const auto layers = [] {
    Layers all;
    all.push_back(std::make_unique<Scale>(4));
    return all;
  };
  make(layers());
  EXPECT_NE(strategy_->in_words().find("one by one"), std::string::npos);
  const std::vector<std::int64_t> drawn = {1, 2, 5, 17};
  step(1, drawn);
  EXPECT_LT((now() - expected_after(drawn, classifier_of(layers(), 4))).abs().max().item<double>(), 1e-5);
}

// A record more moves others to other places, and so to other masks, which would tell of it.
TEST_F(PrivateStepsTest, WhatLayersDrawIsASecretUnlessATestAsksOtherwise) {
  samples_ = {{waves({kRecords, 4})}, at::remainder(at::arange(kRecords, at::kLong), 4)};
  setting_.options.dp_noise = 0;
  const auto after_a_step = [&](const char* source) {
    setting_.options.noise_source = source;
    Layers layers;
    layers.push_back(std::make_unique<models::Dropout>("dropout", 0.5));
    layers.push_back(std::make_unique<models::Linear>("linear", 4, 4));
    make(std::move(layers));
    step(1, {1, 2, 5, 17});
    return now().clone();
  };
  EXPECT_TRUE(after_a_step("seeded").equal(after_a_step("seeded")));
  EXPECT_FALSE(after_a_step("secure").equal(after_a_step("secure")));
}

TEST_F(PrivateStepsTest, DrawsOfASeededRunAreOfItsWholeSeed) {
  samples_ = {{waves({kRecords, 4})}, at::remainder(at::arange(kRecords, at::kLong), 4)};
  const auto draws_of = [&](std::uint64_t seed) {
    seed_ = seed;
    Layers layers;
    layers.push_back(std::make_unique<Scale>(4));
    make(std::move(layers));
    return strategy_->draws(1);
  };
  const auto draws = draws_of(10);
  EXPECT_EQ(draws, draws_of(10));
  EXPECT_NE(draws, draws_of(11)) << "the lowest bit";
  EXPECT_NE(draws, draws_of(10 + (std::uint64_t{1} << 32))) << "the high half";
}

TEST_F(PrivateStepsTest, AParameterWithoutAGradientIsFatal) {
  samples_ = {{waves({kRecords, 4})}, at::remainder(at::arange(kRecords, at::kLong), 4)};
  Layers layers;
  layers.push_back(std::make_unique<Scale>(4));
  layers.push_back(std::make_unique<Idle>());
  make(std::move(layers));
  if (job_.data().size() > 1) GTEST_SKIP() << "the error ends a run on all ranks by MPI_Abort";
  try {
    step(1, {1, 2});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.subject(), "parameter idle.weight");
  }
}

TEST_F(PrivateStepsTest, ASampleThatIsNotFiniteEndsTheRunOnAllRanks) {
  make();
  samples_.inputs[0][3][0] = std::nan("");
  EXPECT_THROW(step(1, {2, 3, 4}), Error);
}

TEST_F(PrivateStepsTest, TheLedgerIsPartOfTheStateAndSurvivesIt) {
  make();
  step(1, {1, 2});
  step(2, {3});
  const double epsilon = strategy_->epsilon();
  const privacy::SampledGaussian two{
      .sampling = privacy::Sampling::poisson, .noise_multiplier = 0.7, .rate = 0.25, .steps = 2};
  EXPECT_DOUBLE_EQ(epsilon, privacy::renyi_epsilon({two}, 1e-5));
  at::Tensor saved;
  for (const auto& tensor : strategy_->state().tensors())
    if (tensor.group == "optimizer/privacy") saved = tensor.value.clone();
  ASSERT_TRUE(saved.defined());
  make();
  EXPECT_EQ(strategy_->releases(), 0);
  for (const auto& tensor : strategy_->state().tensors()) {
    auto value = tensor.value;
    if (tensor.group == "optimizer/privacy") value.copy_(saved);
  }
  strategy_->adopt_optimizer();
  EXPECT_EQ(strategy_->releases(), 2);
  EXPECT_DOUBLE_EQ(strategy_->epsilon(), epsilon);
}

TEST_F(PrivateStepsTest, TheBudgetIsSpentAfterSoManySteps) {
  setting_.options.dp_noise = -1;
  setting_.options.target_epsilon = 2;
  make();
  int steps = 0;
  for (; steps < 100 && !strategy_->is_spent(); ++steps) step(steps + 1, {1});
  EXPECT_GE(steps, 40) << "what the noise was found for";
  EXPECT_LE(steps, 41);
  EXPECT_LE(strategy_->epsilon(), 2);
  const auto earlier = strategy_->ledger();
  make();
  strategy_->take_ledger(earlier, "its file");
  EXPECT_TRUE(strategy_->is_spent()) << "steps of a part of the run that was lost count";
}

TEST_F(PrivateStepsTest, DrawsAreThoseThatAreAccounted) {
  make();
  std::size_t drawn = 0;
  for (int epoch = 1; epoch <= 50; ++epoch) {
    EXPECT_EQ(strategy_->draws(epoch).size(), 4U);
    for (const auto& step : strategy_->draws(epoch)) drawn += step.size();
  }
  EXPECT_NEAR(static_cast<double>(drawn), 50 * 20, 5 * std::sqrt(200 * 20 * 0.25 * 0.75));
  setting_.options.dp_sampler = "once";
  make();
  EXPECT_EQ(strategy_->terms().rate, 0.25);
  drawn = 0;
  for (const auto& step : strategy_->draws(3)) drawn += step.size();
  EXPECT_EQ(drawn, static_cast<std::size_t>(kRecords));
}

/// The probability that is the least, with 97.5 % confidence, of what happened `count` times in `trials`.
/// Source: Clopper and Pearson, "The Use of Confidence or Fiducial Limits", 1934.
double least_probability(int count, int trials) {
  if (count == 0) return 0;
  double low = 0;
  double high = 1;
  for (int i = 0; i < 60; ++i) {
    const double p = (low + high) / 2;
    double as_many = 0;  // the probability of `count` or more
    for (int k = count; k <= trials; ++k) {
      as_many += std::exp(std::lgamma(trials + 1) - std::lgamma(k + 1) - std::lgamma(trials - k + 1) +
                          k * std::log(p) + (trials - k) * std::log1p(-p));
    }
    (as_many < 0.025 ? low : high) = p;
  }
  return low;
}

// An observer knows all records but one, which was planted, and looks at the update along the direction of
// that one's gradient. Source: Nasr et al., "Tight Auditing of Differentially Private Machine Learning",
// USENIX Security 2023.
TEST_F(PrivateStepsTest, AnAuditFindsLessThanIsClaimedAndMoreWithoutNoise) {
  if (job_.data().size() > 1) GTEST_SKIP() << "the same update on any number of ranks";
  constexpr int kTrials = 600;
  constexpr double kDelta = 1e-3;
  const std::vector<std::int64_t> without = {0, 1};
  const std::vector<std::int64_t> with = {0, 1, 2};  // 2 is planted
  // What a step does to the weights, which are the same before each.
  const auto update_of = [&](int number, const std::vector<std::int64_t>& ids) {
    const auto before = now().clone();
    step(number, ids);
    auto update = now() - before;
    const at::NoGradGuard no_grad;
    std::int64_t place = 0;
    for (auto* parameter : model_->parameters()) {
      parameter->value.copy_(before.narrow(0, place, parameter->value.numel()).view_as(parameter->value));
      place += parameter->value.numel();
    }
    return update;
  };
  setting_.options.dp_noise = 0;
  make();
  const auto plain = update_of(1, without);
  auto direction = update_of(2, with) - plain;
  const double gap = direction.norm().item<double>();
  direction /= gap;
  const double base = at::dot(plain, direction).item<double>();
  EXPECT_LE(gap, 0.5 * 0.5 / 5 * (1 + 1e-5)) << "learning rate times clip norm over batch";
  const auto bound_of = [&](const std::vector<double>& seen, double threshold) {
    int wrong = 0;
    int right = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      wrong += seen[static_cast<std::size_t>(trial)] > threshold;
      right += seen[static_cast<std::size_t>(kTrials + trial)] > threshold;
    }
    const double most_wrong = 1 - least_probability(kTrials - wrong, kTrials);
    return std::log(std::max((least_probability(right, kTrials) - kDelta) / most_wrong, 1e-9));
  };
  const privacy::SampledGaussian one{
      .sampling = privacy::Sampling::poisson, .noise_multiplier = 1.5, .rate = 1, .steps = 1};
  const double claimed = privacy::renyi_epsilon({one}, kDelta);
  std::vector<double> without_noise(2 * kTrials, base);
  std::fill(without_noise.begin() + kTrials, without_noise.end(), base + gap);
  EXPECT_GT(bound_of(without_noise, base + gap / 2), claimed) << "nothing hides the record";
  setting_.options.dp_noise = 1.5;
  model_ = small_model();
  make();
  std::vector<double> with_noise;
  for (int trial = 0; trial < 2 * kTrials; ++trial) {
    const auto update = update_of(trial + 1, trial < kTrials ? without : with);
    with_noise.push_back(at::dot(update, direction).item<double>());
  }
  for (const double part : {0.0, 0.5, 1.0, 1.5, 2.0}) {
    const double found = bound_of(with_noise, base + part * gap);
    EXPECT_LT(found, claimed) << part;
    if (part == 1.0) {
      EXPECT_GT(found, 0.1) << "the audit finds something";
    }
  }
}

TEST_F(PrivateStepsTest, WhatLeaksOrCannotBeClippedIsRefused) {
  const auto why = [&](auto change) {
    auto setting = setting_of(1);
    change(setting);
    return PrivateSteps::can(setting).runs.why_not;
  };
  EXPECT_EQ(why([](Setting&) {}), "");
  const auto vgg = models::find_model("resnet18")
                       .make({.task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 2}, {});
  EXPECT_NE(why([&](Setting& s) { s.model = vgg.get(); }).find("BatchNorm"), std::string::npos);
  EXPECT_NE(why([](Setting& s) { s.mesh.pipe = 2; }), "");
  EXPECT_NE(why([](Setting& s) { s.half = at::kBFloat16; }), "");
  EXPECT_NE(why([](Setting& s) { s.class_weights = true; }), "");
  EXPECT_NE(why([](Setting& s) { s.options.compression = "int8"; }), "");
}

}  // namespace
}  // namespace dtrain::parallel
