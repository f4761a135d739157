#pragma once

#include <string>

#include "federated/client_rounds.hpp"
#include "parallel/strategy/abilities.hpp"
#include "train/config/config.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// Throws Error (exit code 2), naming the option, where the strategy is unknown, does not have an option that
/// the user gave, or a value cannot work.
void validate_strategy_options(const RunConfig& config);

/// Throws Error (exit code 2) where gradients are to be compressed and do not travel between nodes, or the
/// device is not the CPU.
void require_links_to_compress(const RunConfig& config, Job& job);

/// Throws Error (exit code 2) where the state is to be shared out within nodes, and some have not as many
/// ranks, or one.
void require_ranks_to_shard_within(const RunConfig& config, Job& job);

/// Whether the strategy has the option of StrategyOptions called `name`, and it has a use there.
bool uses_strategy_option(const RunConfig& config, const std::string& name);

/// Whether copies take their work from servers, at their own pace.
bool has_servers(const RunConfig& config);
/// Whether each rank serves in a thread, beside computing.
bool serves_in_threads(const RunConfig& config);

/// Data ranks that compute: all but those that only serve. At least 1.
int workers(const RunConfig& config);
/// The fewest ranks on which the strategy runs.
int fewest_ranks(const RunConfig& config);

/// What a strategy is asked about: as far as the options say.
parallel::Setting strategy_setting(const RunConfig& config);

/// The whole: with device, dataset, model and clients. `rounds` is borrowed; null: the samples belong to no
/// clients. `recovers`: whether the run goes on after a rank was lost.
parallel::Setting strategy_setting(const RunConfig& config, Job& job, const Workload& workload,
                                   const federated::ClientRounds* rounds, bool recovers);

}  // namespace dtrain::train
