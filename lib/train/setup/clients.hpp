#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "comm/mpi/communicator.hpp"
#include "federated/client_rounds.hpp"
#include "record/results_writer.hpp"
#include "state/resume_point.hpp"
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

/// What each client keeps from round to round is not in a checkpoint, but beside it: a run that goes on from
/// another run's checkpoint copies it to `folder`, where its clients keep anything. Collective. Throws Error
/// (exit code 4).
void take_over_client_states(const RunConfig& config, const state::ResumePoint& resume,
                             const std::filesystem::path& folder, const comm::Communicator& world);

}  // namespace dtrain::train
