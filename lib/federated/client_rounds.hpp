#pragma once

#include <cstdint>
#include <vector>

#include "federated/partition.hpp"
#include "parallel/step/step.hpp"
#include "parallel/strategy/abilities.hpp"
#include "parallel/strategy/private_training.hpp"

namespace dtrain::federated {

/// Which clients take part in a round, what each of them does, and which rank simulates it. A pure function
/// of its arguments: the clients, the order of their samples and the micro-batches' indices are the same on
/// any number of ranks.
class ClientRounds {
 public:
  struct Facts {
    int clients_per_round = 1;     ///< Sampled without replacement, each with the same probability.
    int local_epochs = 1;          ///< Passes of a client over its samples in a round.
    std::int64_t local_batch = 0;  ///< Samples of a local step, fewer in the last of a pass; 0: all.
    double drop_rate = 0;          ///< Probability with which a sampled client hands nothing in; below 1.
    std::uint64_t seed = 1;
  };
  /// Throws Error (exit code 2) naming --clients-per-round where there are fewer clients.
  ClientRounds(Partition partition, const Facts& facts);

  const Partition& partition() const { return partition_; }

  /// The clients that are sampled in a round (from 1), ascending.
  std::vector<int> sampled(std::int64_t round) const;
  /// Those of them that hand in an update, ascending; perhaps none.
  std::vector<int> reporting(std::int64_t round) const;

  /// What a rank of those that simulate clients does in a round; StepPlan::learning_rate is left open.
  /// Clients are dealt by their samples: the largest first, each to the rank that has fewest samples by then.
  /// Rank -1 simulates none. `privacy`: draws the clients, or the records of their local steps; null: nothing
  /// is drawn in secret.
  parallel::StepPlan plan(std::int64_t round, int rank, int ranks,
                          const parallel::PrivateTraining* privacy = nullptr) const;

  std::int64_t local_steps(int client) const;
  std::int64_t most_samples() const;  ///< Of any client.
  parallel::ClientFacts facts_of(int client) const;

 private:
  std::vector<parallel::ClientDropout> dropouts(std::int64_t round, const std::vector<int>& asked,
                                                const std::vector<int>& clients, int rank, int ranks) const;
  std::int64_t batch_of(int client) const;
  std::vector<int> without_dropped(std::int64_t round, std::vector<int> clients) const;
  void add_steps(std::int64_t round, int client, std::uint32_t first_draw,
                 const parallel::PrivateTraining* privacy, parallel::StepPlan& plan) const;

  Partition partition_;
  Facts facts_;
};

}  // namespace dtrain::federated
