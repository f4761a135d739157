#pragma once

#include "checkpoint/manifest.hpp"
#include "optim/loss_scaler.hpp"
#include "train/config/config.hpp"
#include "train/loop/run_outputs.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// What every checkpoint of a run says of it: model, data, configuration. Where the run stands is the
/// caller's to add.
checkpoint::CheckpointInfo info_of_run(const RunConfig& config, const Workload& workload, const Job& job);

/// What an epoch's steps have come to, for the part of the run that goes on with it, but for the time, the
/// samples' hash and whether it is evaluated; and back, without the hash, which one rank alone has.
checkpoint::EpochProgress progress_of(const EpochSums& sums);
EpochSums sums_of(const checkpoint::EpochProgress& earlier);

checkpoint::LossScale for_checkpoint(const optim::LossScale& state);
optim::LossScale from_checkpoint(const checkpoint::LossScale& kept);

}  // namespace dtrain::train
