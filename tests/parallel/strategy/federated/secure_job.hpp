// A job whose first rank is the server of secure sums. For tests.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/passing_group.hpp"
#include "parallel/strategy/federated/fed_avg.hpp"
#include "parallel/strategy/job_of_rounds.hpp"

namespace dtrain::parallel {

/// A client pulls the weights to its target, in one local step.
struct Puller {
  double target = 0;
  std::int64_t samples = 1;
};
inline const std::vector<Puller> kPullers = {{1, 3}, {-2, 5}, {0.5, 2}, {3, 7}, {-1, 1}, {2, 4}, {-0.25, 6}};
inline constexpr int kClients = 7;
inline constexpr double kPull = 0.25;
inline constexpr double kLargest = 4;

/// Keeps all that comes to this rank: messages, and results of collectives.
class WatchedGroup final : public comm::PassingGroup {
 public:
  using PassingGroup::PassingGroup;
  comm::Handle receive(comm::Buffer values, int from) override {
    return kept(passed_on().receive(values, from), values);
  }
  comm::Handle broadcast(comm::Buffer values, int root) override {
    ++broadcasts;
    return kept(passed_on().broadcast(values, root), values);
  }
  comm::Handle all_reduce(comm::Buffer values, comm::ReduceOp op, comm::Algorithm algorithm) override {
    return kept(passed_on().all_reduce(values, op, algorithm), values);
  }
  std::string seen;  // bytes
  int broadcasts = 0;

 private:
  comm::Handle kept(const comm::Handle& operation, const comm::Buffer& values) {
    operation.wait();
    seen.append(static_cast<const char*>(values.data), values.bytes());
    return {};
  }
};

/// Which of a round's clients drop out, after how many answers.
using Losses = std::map<int, int>;

class SecureJob : public JobOfRounds {
 public:
  SecureJob() : watched_(parts({}, {}).data) {
    engine.target_of = [](const MicroBatch& batch) {
      return kPullers.at(static_cast<std::size_t>(batch.ids.at(0))).target;
    };
  }
  std::unique_ptr<FedAvg> strategy(const std::string& masks, FederatedOptions options = {},
                                   StrategyOptions all = {}) {
    options.secure.masks = masks;
    options.secure.clip = kLargest;
    options.secure.threshold = options.secure.threshold > 0 ? options.secure.threshold : 4;
    all.federated = options;
    auto own = parts(all, {.name = "sgd"});
    for (const auto& puller : kPullers) own.setting.clients.push_back({.samples = puller.samples});
    own.setting.total_steps = 10;
    own.setting.recovers = true;
    return std::make_unique<FedAvg>(StrategyParts{.setting = own.setting,
                                                  .world = own.world,
                                                  .data = watched_,
                                                  .pipe = own.pipe,
                                                  .tensor = own.tensor,
                                                  .queue = own.queue,
                                                  .model = own.model,
                                                  .cuts = own.cuts,
                                                  .engine = own.engine,
                                                  .sink = own.sink,
                                                  .dtype = own.dtype,
                                                  .requests = own.requests,
                                                  .tell = own.tell,
                                                  .keep_ledger = [this](const std::string& lines) {
                                                    kept.push_back({lines, watched_.broadcasts});
                                                  }});
  }

  /// A round of all clients, dealt to the ranks but the first.
  StepPlan round(std::int64_t number, const Losses& losses = {}) {
    StepPlan plan{.number = number, .learning_rate = kPull, .pauses = true};
    RoundPlan facts{.of = kClients, .most_samples = 7};
    for (int client = 0; client < kClients; ++client) {
      facts.asked.push_back(client);
      const auto lost = losses.find(client);
      const int answers = lost == losses.end() ? ClientWork::kAllPhases : lost->second;
      const bool hands_in = answers > 2;
      facts.sampled += hands_in ? 1 : 0;
      facts.dropped += hands_in ? 0 : 1;
      const auto samples = kPullers[static_cast<std::size_t>(client)].samples;
      if (hands_in) facts.samples += samples;
      if (1 + client % (copies() - 1) != rank()) continue;
      if (!hands_in) {
        facts.dropouts.push_back({.client = client, .answers = answers});
        continue;
      }
      facts.clients.push_back({.client = client,
                               .samples = samples,
                               .first = plan.micro_batches.size(),
                               .steps = 1,
                               .answers = answers});
      plan.micro_batches.push_back(
          {.index = static_cast<std::uint32_t>(client),
           .ids = std::vector<std::int64_t>(static_cast<std::size_t>(samples), client)});
    }
    plan.round = std::make_shared<const RoundPlan>(std::move(facts));
    return plan;
  }
  StepOutcome train(FedAvg& strategy, const StepPlan& plan) { return strategy.step(plan, nothing_); }
  const std::string& seen() const { return watched_.seen; }
  int broadcasts() const { return watched_.broadcasts; }

  /// What the strategy has put into the file of its ledger, and how many broadcasts there had been by then.
  struct Kept {
    std::string lines;
    int broadcasts = 0;
  };
  std::vector<Kept> kept;

 private:
  WatchedGroup watched_;
  NoSamples nothing_;
};

}  // namespace dtrain::parallel
