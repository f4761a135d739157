#pragma once

#include <string>

#include "core/log.hpp"
#include "train/config/config.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// What the bits of a reproducible run are those of, beside the program and its options.
std::string bits_of(const RunConfig& config, int threads);

/// The first lines of a run's log: what is trained, on what, and what of it is slower than it need be.
/// `no_graphs`: why no step is captured for a device to replay; empty where steps are.
void announce(const RunConfig& config, Job& job, const Workload& workload, const std::string& no_graphs,
              const Log& log);

}  // namespace dtrain::train
