#pragma once

#include <memory>
#include <string>

#include "federated/client_rounds.hpp"
#include "record/results_writer.hpp"
#include "train/config/config.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// The clients of a federated run, and what they do in each round; null: the run has none. Each rank finds
/// the same. Throws Error: exit code 2 where the dataset does not allow the options, 3 for its files.
std::unique_ptr<const federated::ClientRounds> client_rounds(const RunConfig& config,
                                                             const Workload& workload);

/// `20 hold 12 to 310 samples each, and 5 are sampled for a round`. `drawn`: each by chance, so that the
/// number varies.
std::string in_words(const federated::ClientRounds& rounds, bool drawn);

/// How the training samples lie with the clients, for results.h5.
record::Clients described_clients(const RunConfig& config, const federated::Partition& partition,
                                  const Workload& workload);

}  // namespace dtrain::train
