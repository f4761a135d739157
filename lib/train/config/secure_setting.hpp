#pragma once

#include "train/config/config.hpp"

namespace dtrain::train {

/// Throws Error (exit code 2), naming the option, at the first value of secure sums that cannot work. What
/// depends on clients and their samples is checked when these are known: parallel::secure_settings().
void validate_secure_sums(const RunConfig& config);

/// Whether steps or rounds are differentially private: --dp-clip, or --secure-noise.
bool is_private(const RunConfig& config);

/// The options, where clients are to be protected in secure sums said in one way: --secure-noise Z with
/// --secure-clip C is --dp-unit client with --dp-clip C and --dp-noise Z.
parallel::StrategyOptions with_noise_in_one_way(parallel::StrategyOptions options);

}  // namespace dtrain::train
