#pragma once

#include <cstdint>

#include "train/config/config.hpp"

namespace dtrain::train {

/// Whether the samples belong to clients, and a step of the run is a round of them.
bool is_federated(const RunConfig& config);

/// Whether each client has something of its own from round to round: control variates, or a model.
bool clients_keep_states(const RunConfig& config);

/// Training samples, of so many, that a step of the run uses: an epoch of a federated run is a round.
std::int64_t samples_of_step(const RunConfig& config, std::int64_t samples);

/// Samples of a client's local step; 0: all that it has. Throws Error (exit code 2) naming --local-batch.
std::int64_t local_batch(const RunConfig& config);

/// Puts rounds in the place of epochs, and a local step in that of a micro-batch. Part of
/// RunConfig::resolve().
void resolve_federated(RunConfig& config);

/// Throws Error (exit code 2), naming the option, at the first value that cannot work.
void validate_federated(const RunConfig& config);

}  // namespace dtrain::train
