#pragma once

#include "parallel/strategy/abilities.hpp"
#include "train/config/config.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// What a strategy is asked about: as far as the options say.
parallel::Setting strategy_setting(const RunConfig& config);

/// The whole: with device, dataset and model. `recovers`: whether the run goes on after a rank was lost.
parallel::Setting strategy_setting(const RunConfig& config, Job& job, const Workload& workload,
                                   bool recovers);

}  // namespace dtrain::train
