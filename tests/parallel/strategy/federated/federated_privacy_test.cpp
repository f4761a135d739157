#include "parallel/strategy/federated/federated_privacy.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/small_model.hpp"
#include "parallel/strategy/federated/client_privacy.hpp"
#include "parallel/strategy/federated/fed_avg.hpp"
#include "parallel/strategy/job_of_rounds.hpp"
#include "privacy/renyi.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kRate = 0.25;
constexpr double kClip = 0.5;
constexpr int kClients = 5;

/// A job whose ranks simulate clients, each of which pulls the weights to a target of its own in one local
/// step.
class PrivateJob : public JobOfRounds {
 public:
  PrivateJob() {
    engine.target_of = [this](const MicroBatch& batch) {
      return targets.at(static_cast<std::size_t>(batch.ids.at(0)));
    };
  }

  StrategyParts private_parts(double noise, int clients_per_round = kClients, double quantile = 0) {
    StrategyOptions options{.dp_clip = kClip,
                            .dp_noise = noise,
                            .noise_source = "seeded",
                            .dp_unit = "client",
                            .dp_adaptive_clip = quantile};
    options.federated.clients_per_round = clients_per_round;
    auto all = parts(options, {.name = "sgd"});
    all.setting.clients.resize(kClients);
    all.setting.total_steps = 10;
    all.setting.recovers = true;
    all.seed = 11;
    return all;
  }

  enum class Deal { in_turn, all_to_first };
  StepPlan round(std::int64_t number, const std::vector<int>& clients, Deal deal = Deal::in_turn) {
    StepPlan plan{.number = number, .learning_rate = kRate, .pauses = true};
    RoundPlan facts{.clients = {},
                    .sampled = static_cast<int>(clients.size()),
                    .samples = std::ssize(clients),
                    .of = kClients,
                    .everyone = clients};
    for (std::size_t k = 0; k < clients.size(); ++k) {
      const int owner = deal == Deal::in_turn ? static_cast<int>(k) % copies() : 0;
      if (owner != rank()) continue;
      facts.clients.push_back({clients[k], 1, plan.micro_batches.size(), 1});
      plan.micro_batches.push_back({.index = static_cast<std::uint32_t>(k), .ids = {clients[k]}});
    }
    plan.round = std::make_shared<const RoundPlan>(std::move(facts));
    return plan;
  }

  StepOutcome train(FedAvg& strategy, const StepPlan& plan) { return strategy.step(plan, nothing_); }

  std::vector<double> targets = {1, -2, 0.01, 3, -1};

 private:
  NoSamples nothing_;
};

/// What a client hands in, clipped, in plain words.
at::Tensor clipped(const at::Tensor& x, double target, double clip) {
  const auto update = -kRate * (x - target);
  return update * std::min(1.0, clip / update.norm().item<double>());
}

TEST(ClientPrivacyTest, TheSumOfClippedUpdatesIsDividedByTheExpectedClientsAndNotByTheDrawnOnes) {
  PrivateJob job;
  FedAvg strategy(job.private_parts(0, 2));
  std::int64_t number = 0;
  for (const auto& drawn : {std::vector<int>{0, 1, 2, 3, 4}, {3}, {}, {1, 2}}) {
    auto expected = job.weights();
    for (const int k : drawn) expected = expected + clipped(job.weights(), job.targets.at(k), kClip) / 2;
    job.train(strategy, job.round(++number, drawn));
    EXPECT_LT(distance(job.weights(), expected), 1e-5) << number;
    EXPECT_NO_THROW(strategy.compare_copies(number));
  }
  EXPECT_EQ(strategy.privacy()->releases(), 4) << "a round without clients counts";
}

TEST(ClientPrivacyTest, OneClientMoreChangesTheSumByTheClipAtMost) {
  for (const double target : {1e6, -3e4, 700.0, 2.5}) {
    PrivateJob one;
    PrivateJob more;
    one.targets[4] = more.targets[4] = target;
    FedAvg without(one.private_parts(0, 3));
    FedAvg with(more.private_parts(0, 3));
    one.train(without, one.round(1, {0, 1, 2}));
    more.train(with, more.round(1, {0, 1, 2, 4}));
    const double changed = 3 * (more.weights() - one.weights()).norm().item<double>();
    EXPECT_LE(changed, kClip) << target;
    EXPECT_GT(changed, kClip * 0.9999) << target;
  }
}

// Once, and not by each rank: its deviation is that of one.
TEST(ClientPrivacyTest, TheNoiseIsAddedOnceWhateverTheNumberOfRanks) {
  PrivateJob job;
  FedAvg strategy(job.private_parts(1.5, 2));
  double squares = 0;
  double count = 0;
  for (std::int64_t number = 1; number <= 40; ++number) {
    const auto before = job.weights();
    job.train(strategy, job.round(number, {}));
    const auto noise = job.weights() - before;
    EXPECT_GT(noise.abs().min().item<double>(), 0.0);
    squares += noise.square().sum().item<double>();
    count += static_cast<double>(noise.numel());
  }
  EXPECT_NEAR(std::sqrt(squares / count) / (1.5 * kClip / 2), 1, 4 / std::sqrt(2 * count));
}

TEST(ClientPrivacyTest, HasTheSameBitsWhicheverRanksSimulateTheClients) {
  PrivateJob spread;
  PrivateJob alone;
  FedAvg one(spread.private_parts(0.7, 3, 0.5));
  FedAvg other(alone.private_parts(0.7, 3, 0.5));
  for (std::int64_t number = 1; number <= 3; ++number) {
    spread.train(one, spread.round(number, {0, 1, 3, 4}));
    alone.train(other, alone.round(number, {0, 1, 3, 4}, PrivateJob::Deal::all_to_first));
    EXPECT_TRUE(spread.weights().equal(alone.weights()));
    EXPECT_EQ(one.privacy()->terms().clip, other.privacy()->terms().clip);
  }
  EXPECT_NE(one.privacy()->terms().clip, kClip);
}

// Far targets, so that the updates keep their lengths 1 : 2 : 3 : 4 : 5.
TEST(ClientPrivacyTest, TheClipComesToTheQuantileOfTheUpdates) {
  for (const auto& [quantile, rank_of_norm] : std::map<double, int>{{0.5, 2}, {0.1, 0}, {0.9, 4}}) {
    PrivateJob job;
    job.targets = {1e3, 2e3, 3e3, 4e3, 5e3};
    auto parts = job.private_parts(0, kClients, quantile);
    parts.setting.options.dp_clip = 1e4;
    FedAvg strategy(parts);
    const auto norm =
        kRate * 1e3 * (rank_of_norm + 1) * std::sqrt(static_cast<double>(job.weights().numel()));
    for (std::int64_t number = 1; number <= 60; ++number) {
      auto plan = job.round(number, {0, 1, 2, 3, 4});
      job.train(strategy, plan);
      const at::NoGradGuard no_grad;
      for (auto* parameter : job.model().parameters()) parameter->value.zero_();
    }
    EXPECT_NEAR(strategy.privacy()->terms().clip / norm, 1, 0.12) << quantile;
  }
}

// The update has more noise than is counted, and its bit the rest: both together are what is counted.
TEST(ClientPrivacyTest, TheNoiseOfAnAdaptiveClipIsPartOfWhatIsCounted) {
  PrivateJob job;
  FedAvg strategy(job.private_parts(1.5, 2, 0.5));
  double squares = 0;
  double count = 0;
  for (std::int64_t number = 1; number <= 40; ++number) {
    const auto before = job.weights();
    const double clip = strategy.privacy()->terms().clip;
    job.train(strategy, job.round(number, {}));
    squares += (job.weights() - before).square().sum().item<double>() / (clip * clip);
    count += static_cast<double>(before.numel());
  }
  const double of_update = 2 * std::sqrt(squares / count);
  const double of_bit = 2 * 1.5;  // its deviation over its sensitivity of 1/2
  EXPECT_NEAR(1 / std::sqrt(1 / (of_update * of_update) + 1 / (of_bit * of_bit)), 1.5, 0.05);
  const privacy::SampledGaussian counted{
      .sampling = privacy::Sampling::poisson, .noise_multiplier = 1.5, .rate = 0.4, .steps = 40};
  EXPECT_DOUBLE_EQ(strategy.privacy()->epsilon(), privacy::renyi_epsilon({counted}, 1e-5));
}

TEST(ClientPrivacyTest, ClientsAreDrawnByChanceWithTheRateThatIsAccounted) {
  PrivateJob job;
  FedAvg strategy(job.private_parts(1, 2));
  EXPECT_DOUBLE_EQ(strategy.privacy()->terms().rate, 0.4);
  std::size_t all = 0;
  std::map<std::size_t, int> sizes;
  for (std::int64_t round = 1; round <= 1000; ++round) {
    const auto drawn = strategy.privacy()->drawn_clients(round);
    ASSERT_TRUE(drawn.has_value());
    EXPECT_TRUE(std::ranges::is_sorted(*drawn));
    all += drawn->size();
    ++sizes[drawn->size()];
  }
  EXPECT_NEAR(static_cast<double>(all), 1000 * 2, 5 * std::sqrt(1000 * 5 * 0.4 * 0.6));
  EXPECT_EQ(sizes.size(), 6U) << "from none to all";
}

TEST(ClientPrivacyTest, ARoundThatIsRolledBackAndMadeAgainIsCountedOnce) {
  PrivateJob job;
  FedAvg strategy(job.private_parts(1, 3, 0.5));
  job.train(strategy, job.round(1, {0, 1}));
  const auto first = job.weights();
  const double clip = strategy.privacy()->terms().clip;
  job.train(strategy, job.round(2, {2, 3}));
  const auto second = job.weights();
  EXPECT_EQ(strategy.privacy()->releases(), 2);
  strategy.roll_back(2);
  EXPECT_TRUE(job.weights().equal(first));
  EXPECT_EQ(strategy.privacy()->releases(), 1);
  EXPECT_EQ(strategy.privacy()->terms().clip, clip);
  job.train(strategy, job.round(2, {2, 3}));
  EXPECT_TRUE(job.weights().equal(second));
  EXPECT_EQ(strategy.privacy()->releases(), 2);
}

TEST(ClientPrivacyTest, LedgerAndClipArePartOfTheState) {
  PrivateJob job;
  FedAvg strategy(job.private_parts(1, 3, 0.5));
  job.train(strategy, job.round(1, {0, 1}));
  job.train(strategy, job.round(2, {2}));
  PrivateJob again;
  FedAvg resumed(again.private_parts(1, 3, 0.5));
  const auto from = strategy.state().tensors();
  const auto to = resumed.state().tensors();
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    auto value = to[i].value;
    if (from[i].group == "optimizer/privacy") value.copy_(from[i].value);
  }
  resumed.adopt_optimizer();
  EXPECT_EQ(resumed.privacy()->releases(), 2);
  EXPECT_EQ(resumed.privacy()->terms().clip, strategy.privacy()->terms().clip);
  EXPECT_EQ(resumed.privacy()->epsilon(), strategy.privacy()->epsilon());
  EXPECT_THROW(resumed.privacy()->take_ledger("dtrain.privacy 1\nend\n", "its file"), Error)
      << "a ledger of records";
}

TEST(ClientPrivacyTest, AnUpdateThatIsNotFiniteEndsTheRunNamingTheRoundAndNoClient) {
  PrivateJob job;
  FedAvg strategy(job.private_parts(1));
  if (job.rank() == 0) job.engine.spoils = std::nan("");
  try {
    job.train(strategy, job.round(1, {0, 1, 2}));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("round 1: an update is not finite"), std::string::npos) << said;
    EXPECT_EQ(said.find("client"), std::string::npos) << said;
  }
  EXPECT_EQ(strategy.privacy()->releases(), 0);
}

// An observer knows all clients but one, which was planted. Source: as for records, see PrivateStepsTest.
TEST(ClientPrivacyTest, AnAuditFindsLessThanIsClaimedAndMoreWithoutNoise) {
  PrivateJob job;
  if (job.copies() > 1) GTEST_SKIP() << "the same update on any number of ranks";
  constexpr int kTrials = 300;
  const auto start = job.weights();
  const auto direction = clipped(start, job.targets[4], 1) / clipped(start, job.targets[4], 1).norm();
  const auto seen = [&](FedAvg& strategy, std::int64_t number, const std::vector<int>& clients) {
    const auto before = job.weights();
    job.train(strategy, job.round(number, clients));
    const double length = kClients * at::dot(job.weights() - before, direction).item<double>();
    const at::NoGradGuard no_grad;
    std::int64_t place = 0;
    for (auto* parameter : job.model().parameters()) {
      parameter->value.copy_(start.narrow(0, place, parameter->value.numel()).view_as(parameter->value));
      place += parameter->value.numel();
    }
    return length;
  };
  // A bound from below by Hoeffding, with 97.5 % confidence for each of the two frequencies.
  const auto bound_of = [&](FedAvg& strategy, double threshold) {
    double right = 0;
    double wrong = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      wrong += seen(strategy, 2 * trial + 1, {0, 1}) > threshold ? 1 : 0;
      right += seen(strategy, 2 * trial + 2, {0, 1, 4}) > threshold ? 1 : 0;
    }
    const double apart = std::sqrt(std::log(1 / 0.025) / (2 * kTrials));
    return std::log(std::max(right / kTrials - apart, 1e-9) / (wrong / kTrials + apart));
  };
  auto open = std::make_unique<FedAvg>(job.private_parts(0));
  const double threshold = seen(*open, 1, {0, 1}) + kClip / 2;
  const double claimed = privacy::renyi_epsilon(
      {{.sampling = privacy::Sampling::poisson, .noise_multiplier = 1.2, .rate = 1, .steps = 1}}, 1e-2);
  EXPECT_GT(bound_of(*open, threshold), claimed) << "nothing hides the client";
  open.reset();
  FedAvg strategy(job.private_parts(1.2));
  const double found = bound_of(strategy, threshold);
  EXPECT_LT(found, claimed);
  EXPECT_GT(found, 0.1) << "the audit finds something";
}

/// Brings samples of the small model by their ids.
class ById final : public SampleSource {
 public:
  Samples take(const StepPlan& plan, std::size_t m) override {
    const auto ids = at::tensor(plan.micro_batches.at(m).ids, at::kLong);
    return {{all_.inputs.index_select(0, ids)}, all_.targets.index_select(0, ids)};
  }
  std::vector<Samples> look_ahead(const StepPlan&) override { return {}; }
  void read_ahead() override {}
  const SmallBatch& all() const { return all_; }
  /// Makes the gradient of a record so long that it is clipped.
  void plant(std::int64_t id) { all_.inputs.narrow(0, id, 1).mul_(20); }

 private:
  SmallBatch all_ = small_batch(12);
};

/// Client 0 has samples 0 to 7, and client 1 samples 8 to 11; both make local steps of 2.
class RecordJob : public JobOfRounds {
 public:
  StrategyParts private_parts(double noise) {
    auto all = parts({.dp_clip = kClip, .dp_noise = noise, .noise_source = "seeded"}, {.name = "sgd"});
    all.setting.clients = {{.samples = 8, .batch = 2, .local_steps = 4},
                           {.samples = 4, .batch = 2, .local_steps = 2}};
    all.setting.clients_of = [](std::int64_t) { return std::vector<int>{0, 1}; };
    all.setting.total_steps = 10;
    all.setting.recovers = true;
    all.seed = 11;
    return all;
  }

  /// The last rank simulates a client, whose local steps draw these records.
  StepPlan round(std::int64_t number, int client, const std::vector<std::vector<std::int64_t>>& drawn) {
    StepPlan plan{.number = number, .learning_rate = kRate, .pauses = true};
    RoundPlan facts{.clients = {}, .sampled = 1, .samples = 4, .of = 2, .everyone = {client}};
    if (rank() == copies() - 1) {
      facts.clients.push_back({client, 4, 0, drawn.size()});
      for (const auto& ids : drawn)
        plan.micro_batches.push_back(
            {.index = static_cast<std::uint32_t>(plan.micro_batches.size()), .ids = ids});
    }
    plan.round = std::make_shared<const RoundPlan>(std::move(facts));
    return plan;
  }

  ById source;
};

/// The weights after a local step over `ids` from the present ones, by a backward pass for each record.
at::Tensor after_local_step(models::Model& model, const SmallBatch& all,
                            const std::vector<std::int64_t>& ids) {
  std::vector<at::Tensor> before;
  std::vector<at::Tensor> sums;
  for (const auto* parameter : model.parameters()) {
    before.push_back(parameter->value.detach().clone());
    sums.push_back(at::zeros_like(before.back()));
  }
  for (const auto id : ids) {
    for (auto* parameter : model.parameters()) parameter->value.mutable_grad().reset();
    models::Tensors flowing = {all.inputs.narrow(0, id, 1)};
    for (const auto& layer : model.layers()) flowing = layer->run(flowing, {});
    model.training_loss(flowing, all.targets.narrow(0, id, 1), {}).loss.backward();
    double squares = 0;
    for (const auto* parameter : model.parameters())
      squares += parameter->value.grad().square().sum().item<double>();
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] += model.parameters()[i]->value.grad() * std::min(1.0, kClip / std::sqrt(squares));
  }
  std::vector<at::Tensor> flat;
  for (std::size_t i = 0; i < sums.size(); ++i)
    flat.push_back((before[i] - kRate * sums[i] / 2).flatten().to(at::kDouble));
  return at::cat(flat);
}

void put(models::Model& model, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  std::int64_t place = 0;
  for (auto* parameter : model.parameters()) {
    parameter->value.copy_(values.narrow(0, place, parameter->value.numel()).view_as(parameter->value));
    place += parameter->value.numel();
  }
}

// By 2, the expected number of records, and not by those that were drawn: none, 1 or 5.
TEST(RecordPrivacyTest, LocalStepsAreTheClippedSumOverTheExpectedBatch) {
  RecordJob job;
  FedAvg strategy(job.private_parts(0));
  const auto start = job.weights();
  const std::vector<std::vector<std::int64_t>> drawn = {{0, 2, 3, 5, 7}, {}, {4}, {1, 6}};
  auto expected = start;
  const auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  for (const auto& ids : drawn) {
    put(*model, expected);
    expected = after_local_step(*model, job.source.all(), ids);
  }
  const auto outcome = strategy.step(job.round(1, 0, drawn), job.source);
  EXPECT_LT(distance(job.weights(), expected), 1e-9);
  EXPECT_GT(distance(start, expected), 1e-3);
  EXPECT_EQ(outcome.total.samples, 8);
}

TEST(RecordPrivacyTest, AStepWithoutRecordsAddsItsNoise) {
  RecordJob job;
  FedAvg strategy(job.private_parts(1.5));
  double squares = 0;
  double count = 0;
  for (std::int64_t number = 1; number <= 20; ++number) {
    const auto before = job.weights();
    strategy.step(job.round(number, 1, {{}, {}}), job.source);
    squares += (job.weights() - before).square().sum().item<double>();
    count += static_cast<double>(before.numel());
  }
  const double claimed = kRate * 1.5 * kClip / 2 * std::sqrt(2.0);
  EXPECT_NEAR(std::sqrt(squares / count) / claimed, 1, 4 / std::sqrt(2 * count));
}

// An observer knows the weights before a round, all records but one, and the draws of the local steps.
// Source: as for records of ddp, see PrivateStepsTest.
TEST(RecordPrivacyTest, AnAuditOfAPlantedRecordFindsLessThanIsClaimedAndMoreWithoutNoise) {
  RecordJob job;
  if (job.copies() > 1) GTEST_SKIP() << "the same local steps on any number of ranks";
  constexpr int kTrials = 400;
  constexpr double kNoise = 2;
  constexpr std::int64_t kPlanted = 10;
  job.source.plant(kPlanted);
  const auto start = job.weights();
  const auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  const auto end_of = [&](const std::vector<std::int64_t>& ids) {
    put(*model, start);
    return after_local_step(*model, job.source.all(), ids);
  };
  const auto direction = end_of({9, kPlanted}) - end_of({9});
  ASSERT_NEAR(direction.norm().item<double>(), kRate * kClip / 2, 1e-6) << "it is clipped";
  // How far a round of two local steps goes that way. They are short, so that the second begins where the
  // first did.
  const auto seen = [&](FedAvg& strategy, std::int64_t number, const std::vector<std::int64_t>& ids) {
    auto plan = job.round(number, 1, {ids, ids});
    plan.learning_rate = 1e-3;
    put(job.model(), start);
    strategy.step(plan, job.source);
    return at::dot(job.weights() - start, direction).item<double>();
  };
  auto open = std::make_unique<FedAvg>(job.private_parts(0));
  const double threshold = (seen(*open, 1, {9}) + seen(*open, 2, {9, kPlanted})) / 2;
  // A bound from below by Hoeffding, with 97.5 % confidence for each of the two frequencies.
  const auto bound_of = [&](FedAvg& strategy) {
    double right = 0;
    double wrong = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      wrong += seen(strategy, 2 * trial + 1, {9}) > threshold ? 1 : 0;
      right += seen(strategy, 2 * trial + 2, {9, kPlanted}) > threshold ? 1 : 0;
    }
    const double apart = std::sqrt(std::log(1 / 0.025) / (2 * kTrials));
    return std::log(std::max(right / kTrials - apart, 1e-9) / (wrong / kTrials + apart));
  };
  const double claimed = privacy::renyi_epsilon(
      {{.sampling = privacy::Sampling::poisson, .noise_multiplier = kNoise, .rate = 1, .steps = 2}}, 1e-2);
  EXPECT_GT(bound_of(*open), claimed) << "nothing hides the record";
  open.reset();
  FedAvg strategy(job.private_parts(kNoise));
  const double found = bound_of(strategy);
  EXPECT_LT(found, claimed);
  EXPECT_GT(found, 0.05) << "the audit finds something";
}

TEST(RecordPrivacyTest, EachClientHasALedgerAndTheWorstCounts) {
  RecordJob job;
  FedAvg strategy(job.private_parts(1.5));
  auto& privacy = *strategy.privacy();
  const auto epsilon_of = [](double rate, std::int64_t steps) {
    return privacy::renyi_epsilon(
        {{.sampling = privacy::Sampling::poisson, .noise_multiplier = 1.5, .rate = rate, .steps = steps}},
        1e-5);
  };
  strategy.step(job.round(1, 1, {{8}, {9, 10}}), job.source);
  EXPECT_DOUBLE_EQ(privacy.epsilon(), epsilon_of(0.5, 2));
  strategy.step(job.round(2, 0, {{0}, {}, {1}, {2}}), job.source);
  strategy.step(job.round(3, 0, {{0}, {}, {1}, {2}}), job.source);
  const auto each = privacy.by_client();
  ASSERT_EQ(each.size(), 2U);
  EXPECT_EQ(each[0].steps, 8);
  EXPECT_EQ(each[1].steps, 2);
  EXPECT_DOUBLE_EQ(each[0].epsilon, epsilon_of(0.25, 8));
  EXPECT_DOUBLE_EQ(each[1].epsilon, epsilon_of(0.5, 2));
  EXPECT_DOUBLE_EQ(privacy.epsilon(), std::max(each[0].epsilon, each[1].epsilon));
  strategy.roll_back(3);
  EXPECT_EQ(privacy.by_client()[0].steps, 4);
  const auto earlier = privacy.ledger();
  RecordJob again;
  FedAvg resumed(again.private_parts(1.5));
  EXPECT_EQ(resumed.privacy()->epsilon(), 0);
  EXPECT_EQ(resumed.privacy()->take_ledger(earlier, "its file"), 4 + 2) << "of all clients";
  EXPECT_EQ(resumed.privacy()->epsilon(), privacy.epsilon());
  EXPECT_EQ(resumed.privacy()->take_ledger(earlier, "its file"), 0);
  strategy.step(job.round(3, 1, {{8}, {9, 10}}), job.source);  // another client becomes the worst, with less
  EXPECT_LT(privacy.releases(), 4 + 2);
  EXPECT_EQ(resumed.privacy()->take_ledger(privacy.ledger(), "its file"), 2);
  EXPECT_THROW(resumed.privacy()->take_ledger("dtrain.privacy 1\nend\n", "its file"), Error);
}

TEST(RecordPrivacyTest, RecordsAreDrawnByChanceAndOtherwiseInEachStep) {
  RecordJob job;
  FedAvg strategy(job.private_parts(1));
  std::size_t all = 0;
  std::map<std::vector<std::int64_t>, int> seen;
  for (std::int64_t round = 1; round <= 100; ++round) {
    for (std::uint32_t index = 0; index < 10; ++index) {
      const auto drawn = strategy.privacy()->drawn_records(round, index, 0);
      ASSERT_TRUE(drawn.has_value());
      all += drawn->size();
      ++seen[*drawn];
    }
  }
  EXPECT_NEAR(static_cast<double>(all), 1000 * 2, 5 * std::sqrt(1000 * 8 * 0.25 * 0.75));
  EXPECT_GT(seen.size(), 100U);
  EXPECT_GT(seen[{}], 50) << "a step may draw none";
  EXPECT_FALSE(strategy.privacy()->drawn_clients(1).has_value()) << "clients are no secret";
}

TEST(FederatedPrivacyTest, SaysWhatItCannotDo) {
  const auto why = [](auto change) {
    Setting setting;
    setting.options.dp_clip = 1;
    setting.options.dp_unit = "client";
    change(setting);
    return FedAvg::can(setting).runs.why_not;
  };
  EXPECT_EQ(why([](Setting&) {}), "");
  EXPECT_NE(why([](Setting& s) {
              s.options.federated.rule = "fednova";
              s.optimizer = {.name = "sgd"};
            }).find("count alike"),
            std::string::npos);
  EXPECT_NE(why([](Setting& s) {
              s.options.federated.rule = "scaffold";
              s.optimizer = {.name = "sgd"};
            }).find("without noise"),
            std::string::npos);
  EXPECT_NE(why([](Setting& s) { s.options.federated.round_deadline = 1; }).find("--round-deadline"),
            std::string::npos);
  EXPECT_NE(why([](Setting& s) { s.class_weights = true; }).find("--class-weights"), std::string::npos);
  EXPECT_NE(why([](Setting& s) { s.half = at::kBFloat16; }).find("fp32"), std::string::npos);
  const auto resnet =
      models::find_model("resnet18")
          .make({.task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 2}, {});
  EXPECT_NE(why([&](Setting& s) { s.model = resnet.get(); }).find("BatchNorm"), std::string::npos);
}

}  // namespace
}  // namespace dtrain::parallel
