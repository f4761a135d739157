#include "parallel/strategy/federated/fed_avg.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "parallel/strategy/job_of_rounds.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kRounding = 1e-10;  // of sums in units of 2^-40, over some rounds

/// A folder that all ranks of the test see, removed by the first of them.
class SharedFolder {
 public:
  explicit SharedFolder(int rank) : rank_(rank) {
    auto name = std::to_string(::getpid());
    name.resize(20, ' ');
    MPI_Bcast(name.data(), 20, MPI_CHAR, 0, MPI_COMM_WORLD);
    path_ = std::filesystem::temp_directory_path() / ("dtrain-clients-" + name.substr(0, name.find(' ')));
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  ~SharedFolder() {
    MPI_Barrier(MPI_COMM_WORLD);
    std::error_code error;
    if (rank_ == 0) std::filesystem::remove_all(path_, error);
  }
  std::string path() const { return path_.string(); }

 private:
  int rank_;
  std::filesystem::path path_;
};

/// A client pulls the weights to its target, with so many samples and local steps.
struct Client {
  double target = 0;
  std::int64_t samples = 1;
  std::size_t steps = 1;
};

const std::vector<Client> kClients = {{1, 3, 2}, {-2, 5, 1}, {0.5, 2, 4}, {3, 7, 3}, {-1, 1, 1}};

constexpr double kRate = 0.25;

/// A job whose ranks simulate clients.
class FederatedJob : public JobOfRounds {
 public:
  FederatedJob() {
    // A sample's id says whose it is.
    engine.target_of = [](const MicroBatch& batch) {
      return kClients.at(static_cast<std::size_t>(batch.ids.at(0))).target;
    };
  }

  StrategyParts federated(const FederatedOptions& options, const optim::OptimizerConfig& optimizer,
                          bool recovers = false) {
    auto all = parts({.federated = options}, optimizer);
    all.setting.recovers = recovers;
    return all;
  }

  enum class Deal { in_turn, all_to_first };
  StepPlan round(std::int64_t number, const std::vector<int>& clients, Deal deal = Deal::in_turn,
                 int dropped = 0) {
    StepPlan plan{.number = number, .learning_rate = kRate, .pauses = true};
    RoundPlan facts{.clients = {},
                    .sampled = static_cast<int>(clients.size()),
                    .dropped = dropped,
                    .of = static_cast<int>(kClients.size())};
    std::uint32_t index = 0;
    for (std::size_t k = 0; k < clients.size(); ++k) {
      const auto& client = kClients.at(static_cast<std::size_t>(clients[k]));
      facts.samples += client.samples;
      const int owner = deal == Deal::in_turn ? static_cast<int>(k) % copies() : 0;
      if (owner == rank()) {
        facts.clients.push_back({clients[k], client.samples, plan.micro_batches.size(), client.steps});
        for (std::size_t step = 0; step < client.steps; ++step) {
          plan.micro_batches.push_back(
              {.index = index + static_cast<std::uint32_t>(step),
               .ids = std::vector<std::int64_t>(static_cast<std::size_t>(client.samples), clients[k])});
        }
      }
      index += static_cast<std::uint32_t>(client.steps);
    }
    plan.round = std::make_shared<const RoundPlan>(std::move(facts));
    return plan;
  }

  StepOutcome train(FedAvg& strategy, const StepPlan& plan) { return strategy.step(plan, nothing_); }

 private:
  NoSamples nothing_;
};

optim::OptimizerConfig sgd(double momentum = 0) { return {.name = "sgd", .momentum = momentum}; }

/// What a client's local steps make of weights x: plain loops over the formulas.
at::Tensor trained(const at::Tensor& x, const Client& client, double momentum = 0, double mu = 0,
                   bool nesterov = false) {
  auto y = x.clone();
  auto velocity = at::zeros_like(x);
  for (std::size_t step = 0; step < client.steps; ++step) {
    const auto gradient = (y - client.target) + mu * (y - x);
    velocity = momentum * velocity + gradient;
    y = y - kRate * (nesterov ? gradient + momentum * velocity : velocity);
  }
  return y;
}

at::Tensor mean_of(const at::Tensor& x, const std::vector<int>& clients, double momentum = 0, double mu = 0) {
  auto sum = at::zeros_like(x);
  double samples = 0;
  for (const int k : clients) {
    const auto& client = kClients.at(static_cast<std::size_t>(k));
    sum = sum + static_cast<double>(client.samples) * trained(x, client, momentum, mu);
    samples += static_cast<double>(client.samples);
  }
  return sum / samples;
}

TEST(FedAvgTest, TheGlobalModelIsTheMeanOfTheClientsWeightedByTheirSamples) {
  FederatedJob job;
  FedAvg strategy(job.federated({}, sgd()));
  auto expected = job.weights();
  std::int64_t number = 0;
  for (const auto& clients : {std::vector<int>{0, 1, 2, 3, 4}, {1, 3}, {2}}) {
    expected = mean_of(expected, clients);
    const auto outcome = job.train(strategy, job.round(++number, clients));
    EXPECT_LT(distance(job.weights(), expected), kRounding) << number;
    EXPECT_TRUE(outcome.agreed);
    ASSERT_TRUE(outcome.round.has_value());
    EXPECT_EQ(outcome.round->handed_in, std::ssize(clients));
    EXPECT_EQ(outcome.round->sampled, std::ssize(clients));
    EXPECT_NO_THROW(strategy.compare_copies(number));
  }
}

TEST(FedAvgTest, ClientsBeginEachRoundWithAnOptimizerWithoutState) {
  FederatedJob job;
  FedAvg strategy(job.federated({}, sgd(0.9)));
  auto expected = job.weights();
  for (std::int64_t number = 1; number <= 3; ++number) {
    expected = mean_of(expected, {0, 2, 3}, 0.9);
    job.train(strategy, job.round(number, {0, 2, 3}));
    EXPECT_LT(distance(job.weights(), expected), kRounding);
  }
}

TEST(FedAvgTest, CountsTheLossesAndSamplesOfAllLocalSteps) {
  FederatedJob job;
  FedAvg strategy(job.federated({}, sgd()));
  const auto outcome = job.train(strategy, job.round(1, {0, 1, 3}));
  EXPECT_DOUBLE_EQ(outcome.total.samples, 3 * 2 + 5 * 1 + 7 * 3);
  EXPECT_DOUBLE_EQ(outcome.total.weight, outcome.total.samples);
  EXPECT_DOUBLE_EQ(outcome.total.micro_batches, 2 + 1 + 3);
  EXPECT_EQ(outcome.round->samples, 3 + 5 + 7);
}

TEST(FedAvgTest, HasTheSameBitsWhicheverRanksSimulateTheClients) {
  for (const std::string server : {"none", "adam"}) {
    FederatedJob spread;
    FederatedJob alone;
    const FederatedOptions options{.server_optimizer = server};
    FedAvg one(spread.federated(options, sgd(0.5)));
    FedAvg other(alone.federated(options, sgd(0.5)));
    for (std::int64_t number = 1; number <= 3; ++number) {
      spread.train(one, spread.round(number, {0, 1, 2, 3, 4}));
      alone.train(other, alone.round(number, {0, 1, 2, 3, 4}, FederatedJob::Deal::all_to_first));
      EXPECT_TRUE(spread.weights().equal(alone.weights()));
    }
  }
}

TEST(FedAvgTest, OneClientWithOneLocalStepIsDdp) {
  FederatedJob job;
  JobOfRounds usual;
  FedAvg strategy(job.federated({}, sgd()));
  Synchronous ddp(usual.parts({}, sgd()));
  usual.engine.target = kClients[4].target;
  for (std::int64_t number = 1; number <= 4; ++number) {
    const auto found = job.train(strategy, job.round(number, {4}));
    const auto expected = usual.step(ddp, number);
    EXPECT_LT(distance(job.weights(), usual.weights()), kRounding);
    EXPECT_NEAR(found.total.loss / found.total.weight, expected.total.loss / expected.total.weight, 1e-9);
  }
}

TEST(FedAvgTest, TheProximalTermHoldsLocalWeightsToTheGlobalOnes) {
  FederatedJob job;
  FedAvg strategy(job.federated({.proximal_mu = 0.3}, sgd(0.5)));
  const auto expected = mean_of(job.weights(), {0, 2, 3}, 0.5, 0.3);
  job.train(strategy, job.round(1, {0, 2, 3}));
  EXPECT_LT(distance(job.weights(), expected), kRounding);
}

TEST(FedAvgTest, ClippingLimitsTheGradientOfALocalStepWithWhatTheRuleAdds) {
  for (const double mu : {0.0, 0.4}) {
    FederatedJob job;
    auto parts = job.federated({.proximal_mu = mu}, sgd());
    parts.grad_clip = 0.7;
    FedAvg strategy(parts);
    const auto start = job.weights();
    auto expected = start.clone();
    for (std::size_t step = 0; step < kClients[3].steps; ++step) {
      const auto gradient = (expected - kClients[3].target) + mu * (expected - start);
      expected = expected - kRate * gradient * std::min(1.0, 0.7 / gradient.norm().item<double>());
    }
    job.train(strategy, job.round(1, {3}));
    EXPECT_LT(distance(job.weights(), expected), 1e-5) << mu;  // a coefficient has 1e-6 in its denominator
  }
}

TEST(FedAvgTest, FedNovaDividesUpdatesByTheirLocalSteps) {
  struct Rule {
    double momentum;
    bool nesterov;
  };
  for (const auto& [momentum, nesterov] : {Rule{0.0, false}, Rule{0.5, false}, Rule{0.5, true}}) {
    FederatedJob job;
    auto config = sgd(momentum);
    config.nesterov = nesterov;
    FedAvg strategy(job.federated({.rule = "fednova"}, config));
    const auto start = job.weights();
    auto mean = at::zeros_like(start);
    double work = 0;
    for (const int k : {0, 1, 2, 3}) {
      const auto& client = kClients[static_cast<std::size_t>(k)];
      const double share = static_cast<double>(client.samples) / 17;
      // A gradient acts once, and again in each later step, momentum times as much as in the one before;
      // Nesterov's form is a momentum ahead.
      double acts = 0;
      for (std::size_t step = 0; step < client.steps; ++step) {
        for (std::size_t later = step; later < client.steps; ++later) {
          acts += std::pow(momentum, static_cast<double>(later - step + (nesterov ? 1 : 0)));
        }
        if (nesterov) acts += 1;
      }
      mean = mean + share * (trained(start, client, momentum, 0, nesterov) - start) / acts;
      work += share * acts;
    }
    job.train(strategy, job.round(1, {0, 1, 2, 3}));
    EXPECT_LT(distance(job.weights(), start + work * mean), kRounding) << momentum << nesterov;
  }
}

/// The weights after rounds of SCAFFOLD: plain loops over algorithm 1.
struct Scaffold {
  explicit Scaffold(at::Tensor start) : x(std::move(start)), c(at::zeros_like(x)), own(kClients.size(), c) {}
  void round(const std::vector<int>& clients) {
    auto update = at::zeros_like(x);
    auto change = at::zeros_like(x);
    double samples = 0;
    for (const int k : clients) {
      const auto& client = kClients.at(static_cast<std::size_t>(k));
      auto& c_i = own.at(static_cast<std::size_t>(k));
      auto y = x.clone();
      for (std::size_t step = 0; step < client.steps; ++step) y = y - kRate * (y - client.target - c_i + c);
      const auto next = c_i - c + (x - y) / (static_cast<double>(client.steps) * kRate);
      change = change + next - c_i;
      c_i = next;
      update = update + static_cast<double>(client.samples) * (y - x);
      samples += static_cast<double>(client.samples);
    }
    x = x + update / samples;
    c = c + change / static_cast<double>(kClients.size());
  }
  at::Tensor x;
  at::Tensor c;
  std::vector<at::Tensor> own;
};

TEST(FedAvgTest, ScaffoldCorrectsLocalStepsByControlVariatesThatIdleClientsKeepInFiles) {
  FederatedJob job;
  const SharedFolder folder(job.rank());
  auto parts = job.federated({.rule = "scaffold"}, sgd());
  parts.folder = folder.path();
  Scaffold expected(job.weights());
  std::int64_t number = 0;
  FedAvg strategy(parts);
  for (const auto& clients : {std::vector<int>{0, 1, 3}, {2, 3}, {0, 4}}) {
    expected.round(clients);
    job.train(strategy, job.round(++number, clients));
    EXPECT_LT(distance(job.weights(), expected.x), kRounding) << number;
  }
  std::map<std::string, at::Tensor> saved;
  for (const auto& tensor : strategy.state().tensors()) {
    if (tensor.group == "optimizer/control") saved[tensor.name] = tensor.value.flatten();
  }
  std::vector<at::Tensor> control;
  for (const auto* parameter : job.model().parameters()) control.push_back(saved.at(parameter->name));
  EXPECT_LT(distance(at::cat(control), expected.c), kRounding);
}

TEST(FedAvgTest, ARunOfScaffoldGoesOnFromAnEarlierRoundWhateverClientsHaveLearntSince) {
  FederatedJob job;
  const SharedFolder folder(job.rank());
  auto parts = job.federated({.rule = "scaffold"}, sgd(), true);
  parts.folder = folder.path();
  FedAvg strategy(parts);
  job.train(strategy, job.round(1, {0, 1, 3}));
  job.train(strategy, job.round(2, {1, 2}));
  const auto second = job.weights();
  job.train(strategy, job.round(3, {0, 1, 2, 3}));
  const auto third = job.weights();
  strategy.roll_back(3);
  EXPECT_TRUE(job.weights().equal(second));
  job.train(strategy, job.round(3, {0, 1, 2, 3}, FederatedJob::Deal::all_to_first));
  EXPECT_TRUE(job.weights().equal(third));
}

TEST(FedAvgTest, ClientsThatTrainAloneGoOnFromTheirOwnModels) {
  FederatedJob job;
  const SharedFolder folder(job.rank());
  auto parts = job.federated({.rule = "local"}, sgd(0.5));
  parts.folder = folder.path();
  const auto start = job.weights();
  std::vector<at::Tensor> alone(kClients.size(), start);
  FedAvg strategy(parts);
  for (std::int64_t number = 1; number <= 3; ++number) {
    auto mean = at::zeros_like(start);
    for (std::size_t k = 0; k < kClients.size(); ++k) {
      alone[k] = trained(alone[k], kClients[k], 0.5);
      mean = mean + static_cast<double>(kClients[k].samples) / 18 * alone[k];
    }
    const auto deal = number == 2 ? FederatedJob::Deal::all_to_first : FederatedJob::Deal::in_turn;
    job.train(strategy, job.round(number, {0, 1, 2, 3, 4}, deal));
    EXPECT_LT(distance(job.weights(), mean), kRounding) << number;
  }
  ASSERT_NE(strategy.client_models(), nullptr);
  for (std::size_t k = 0; k < kClients.size(); ++k) {
    strategy.client_models()->show(static_cast<int>(k), std::numeric_limits<std::int32_t>::max());
    EXPECT_LT(distance(job.weights(), alone[k]), kRounding) << k;
  }
}

TEST(FedAvgTest, ARoundOfClientsThatTrainAloneIsRolledBack) {
  FederatedJob job;
  const SharedFolder folder(job.rank());
  auto parts = job.federated({.rule = "local"}, sgd(), true);
  parts.folder = folder.path();
  FedAvg strategy(parts);
  job.train(strategy, job.round(1, {0, 1, 2, 3, 4}));
  const auto first = job.weights();
  job.train(strategy, job.round(2, {0, 1, 2, 3, 4}));
  const auto second = job.weights();
  strategy.roll_back(2);
  EXPECT_TRUE(job.weights().equal(first));
  job.train(strategy, job.round(2, {0, 1, 2, 3, 4}, FederatedJob::Deal::all_to_first));
  EXPECT_TRUE(job.weights().equal(second));
}

TEST(FedAvgTest, ClientsThatTrainTogetherHaveNoModelsOfTheirOwn) {
  FederatedJob job;
  FedAvg strategy(job.federated({}, sgd()));
  EXPECT_EQ(strategy.client_models(), nullptr);
}

TEST(FedAvgTest, TheServerTakesTheMeanUpdateByItsOptimizer) {
  FederatedJob job;
  FedAvg strategy(
      job.federated({.server_optimizer = "momentum", .server_rate = 0.5, .server_momentum = 0.8}, sgd()));
  auto expected = job.weights();
  auto momentum = at::zeros_like(expected);
  for (std::int64_t number = 1; number <= 3; ++number) {
    momentum = 0.8 * momentum + mean_of(expected, {0, 1, 4}) - expected;
    expected = expected + 0.5 * momentum;
    job.train(strategy, job.round(number, {0, 1, 4}));
    EXPECT_LT(distance(job.weights(), expected), kRounding);
  }
  const auto tensors = strategy.state().tensors();
  EXPECT_TRUE(std::ranges::any_of(
      tensors, [](const StateTensor& tensor) { return tensor.group == "optimizer/server_momentum"; }));
}

TEST(FedAvgTest, WithoutUpdatesTheGlobalModelStays) {
  FederatedJob job;
  FedAvg strategy(job.federated({}, sgd()));
  const auto start = job.weights();
  const auto outcome = job.train(strategy, job.round(1, {}, FederatedJob::Deal::in_turn, 3));
  EXPECT_EQ(outcome.round->handed_in, 0);
  EXPECT_EQ(outcome.round->sampled, 3);
  EXPECT_TRUE(job.weights().equal(start));
}

TEST(FedAvgTest, ARoundEndsWithoutClientsThatAreLate) {
  FederatedJob job;
  FedAvg strategy(job.federated({.round_deadline = 1e-9}, sgd()));
  const auto start = job.weights();
  const auto outcome = job.train(strategy, job.round(1, {0, 1, 2}));
  EXPECT_EQ(outcome.round->handed_in, 0);
  EXPECT_EQ(outcome.round->sampled, 3);
  EXPECT_TRUE(job.weights().equal(start));
}

TEST(FedAvgTest, AnUpdateThatIsNotFiniteEndsTheRunNamingTheRoundAndNoClient) {
  for (const double spoils : {std::numeric_limits<double>::quiet_NaN(), 1e30}) {
    FederatedJob job;
    FedAvg strategy(job.federated({}, sgd()));
    job.train(strategy, job.round(1, {0, 1}));
    const auto before = job.weights();
    if (job.rank() == 0) job.engine.spoils = spoils;
    try {
      job.train(strategy, job.round(2, {0, 1, 3}));
      ADD_FAILURE() << spoils;
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_NE(said.find("round 2: an update is not finite"), std::string::npos) << said;
      EXPECT_EQ(said.find("client"), std::string::npos) << said;
    }
    EXPECT_TRUE(job.weights().equal(before));
  }
}

TEST(FedAvgTest, ARoundIsRolledBackWithTheStateOfTheServer) {
  FederatedJob job;
  FedAvg strategy(job.federated({.server_optimizer = "yogi"}, sgd(), true));
  job.train(strategy, job.round(1, {0, 1, 2}));
  const auto first = job.weights();
  job.train(strategy, job.round(2, {2, 3}));
  const auto second = job.weights();
  strategy.roll_back(3);  // not begun: nothing changes
  EXPECT_TRUE(job.weights().equal(second));
  strategy.roll_back(2);
  EXPECT_TRUE(job.weights().equal(first));
  job.train(strategy, job.round(2, {2, 3}));
  EXPECT_TRUE(job.weights().equal(second));
}

TEST(FedAvgTest, ARoundThatWasInterruptedIsRolledBackAndSoIsTheOneBefore) {
  FederatedJob job;
  FedAvg strategy(job.federated({}, sgd(), true));
  const auto start = job.weights();
  job.train(strategy, job.round(1, {0, 1, 2}));
  const auto first = job.weights();
  job.engine.target_of = [](const MicroBatch&) -> double {
    throw Error("is interrupted", {.subject = "the engine"});
  };
  auto plan = job.round(2, {0, 1, 2});
  EXPECT_THROW(job.train(strategy, plan), Error);
  strategy.roll_back(2);
  EXPECT_TRUE(job.weights().equal(first));
  EXPECT_THROW(job.train(strategy, plan), Error);
  strategy.roll_back(1);  // another rank had not done it
  EXPECT_TRUE(job.weights().equal(start));
}

TEST(FedAvgTest, SaysWhatItCannotDo) {
  const auto why_not = [](const std::function<void(Setting&)>& change) {
    Setting setting;
    change(setting);
    return FedAvg::can(setting).runs.why_not;
  };
  EXPECT_EQ(why_not([](Setting&) {}), "");
  EXPECT_NE(why_not([](Setting& s) { s.mesh.pipe = 2; }).find("one rank"), std::string::npos);
  EXPECT_NE(why_not([](Setting& s) { s.mesh.tensor = 2; }).find("one rank"), std::string::npos);
  EXPECT_NE(why_not([](Setting& s) { s.half = at::kHalf; }).find("fp16"), std::string::npos);
  EXPECT_NE(why_not([](Setting& s) { s.on_device = true; }).find("CPUs"), std::string::npos);
  const auto nova = [](Setting& s) { s.options.federated.rule = "fednova"; };
  EXPECT_NE(why_not([&](Setting& s) {
              nova(s);
              s.optimizer.name = "adam";
            }).find("adam"),
            std::string::npos);
  EXPECT_NE(why_not([&](Setting& s) {
              nova(s);
              s.optimizer.name = "sgd";
              s.options.federated.proximal_mu = 1;
            }).find("--proximal-mu"),
            std::string::npos);
  const auto scaffold = [](Setting& s) { s.options.federated.rule = "scaffold"; };
  EXPECT_NE(why_not([&](Setting& s) {
              scaffold(s);
              s.optimizer = sgd(0.9);
            }).find("plain sgd"),
            std::string::npos);
  EXPECT_NE(why_not([&](Setting& s) {
              scaffold(s);
              s.optimizer.name = "adam";
            }).find("plain sgd"),
            std::string::npos);
  Setting late;
  late.options.federated.round_deadline = 1;
  EXPECT_FALSE(FedAvg::can(late).same_bits);
  EXPECT_TRUE(FedAvg::can({}).same_bits);
  Setting secret;
  secret.options.dp_clip = 1;
  for (const char* unit : {"client", "record"}) {
    secret.options.dp_unit = unit;
    secret.options.noise_source = "secure";
    EXPECT_NE(FedAvg::can(secret).same_bits.why_not.find("--noise-source"), std::string::npos) << unit;
    secret.options.noise_source = "seeded";
    EXPECT_TRUE(FedAvg::can(secret).same_bits) << unit;
  }
}

}  // namespace
}  // namespace dtrain::parallel
