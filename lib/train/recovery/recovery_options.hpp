#pragma once

#include <string>

#include "parallel/strategy/abilities.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

// What options say of lost ranks, before any is lost. All of it is local: every rank finds the same.

/// Throws Error (exit code 2) where `--replicate` or `--on-failure recover` is asked of a strategy that
/// cannot do it, with its reason. A run can recover where its strategy rolls a step back or copies parts.
void check_recovery(const RunConfig& config, const parallel::Abilities& can);

/// Throws Error (exit code 2) where the run is to recover and MPI cannot.
void check_on_failure(const RunConfig& config, bool mpi_can_recover);

/// Throws Error (exit code 2) where spares could take no place: there are not enough of the job's `ranks`,
/// the strategy gives them none, or the run ends when a rank is lost.
void check_spares(const RunConfig& config, bool mpi_can_recover, int ranks);

/// For the log.
std::string recovery_in_words(const RunConfig& config, bool mpi_can_recover);

}  // namespace dtrain::train
