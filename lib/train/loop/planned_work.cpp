#include "train/loop/planned_work.hpp"

#include <utility>

namespace dtrain::train {
namespace {

/// What a rank of those that simulate clients does in a round, as ClientRounds::plan().
std::function<parallel::StepPlan(std::int64_t)> rounds_of(const federated::ClientRounds& rounds,
                                                          const Replica& replica, int rank, int ranks) {
  return [&rounds, rank, ranks, privacy = replica.strategy().privacy()](std::int64_t round) {
    return rounds.plan(round, rank, ranks, privacy);
  };
}

}  // namespace

WorkPlan::Facts planned_work(const RunConfig& config, Job& job, const Workload& workload,
                             const Replica& replica, const federated::ClientRounds* rounds,
                             const parallel::Pieces& pieces,
                             std::function<bool(std::int64_t step)> pauses_after) {
  const auto& data = job.groups().data();
  WorkPlan::Facts facts{.pieces = pieces,
                        .data_rank = data.rank(),
                        .lengths = workload.dataset.source("train", workload.read)->lengths(),
                        .schedule = config.update.schedule,
                        .total_steps = config.total_steps(pieces.steps()),
                        .seed = config.seed,
                        .pauses_after = std::move(pauses_after)};
  if (replica.can().deals_work) {
    facts.take = [&strategy = replica.strategy()](const parallel::WorkRange& steps) {
      return strategy.take_work(steps);
    };
  }
  if (rounds != nullptr) {
    // With secure sums the first rank is the server, and simulates no clients.
    const int servers = config.strategy_options.federated.secure.on() ? 1 : 0;
    facts.round = rounds_of(*rounds, replica, data.rank() - servers, data.size() - servers);
    facts.whole_round = rounds_of(*rounds, replica, 0, 1);
  } else if (auto* const privacy = replica.strategy().privacy(); privacy != nullptr) {
    facts.draws = [privacy](int epoch) { return privacy->draws(epoch); };
  }
  return facts;
}

}  // namespace dtrain::train
