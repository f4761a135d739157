#pragma once

#include "train/config/config.hpp"

namespace dtrain::train {

/// Throws Error (exit code 2), naming the option, at the first value of secure sums that cannot work. What
/// depends on clients and their samples is checked when these are known: parallel::secure_settings().
void validate_secure_sums(const RunConfig& config);

}  // namespace dtrain::train
