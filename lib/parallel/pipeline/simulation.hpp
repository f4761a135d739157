#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace dtrain::parallel {

/// How long actions take, in any one unit, the same for all stages.
struct ActionCosts {
  double forward = 1;
  double backward = 2;
  double transfer = 0;  ///< From the end of an action to the start of the one on another rank that needs it.
};

/// How a schedule would run.
struct Simulation {
  struct Timed {
    Action action;
    double start = 0;
    double end = 0;
  };
  std::vector<std::vector<Timed>> of_rank;
  double duration = 0;
  double idle_share = 0;       ///< Of all ranks' time, in [0, 1).
  std::vector<int> peak_live;  ///< Per rank: most (stage, micro-batch) pairs whose activations live at once.
};

/// Runs `schedule` in thought. Throws Error unless every rank comes to its end and every stage takes each
/// micro-batch forward once and, where the schedule has backward passes, back once after that.
Simulation simulate(const Schedule& schedule, const ActionCosts& costs = {});

/// The schedule as text: a line per rank, time from left to right in units of a forward pass. Micro-batches
/// count from 1; an upper-case letter before the number tells forward from backward, and where ranks have
/// several stages a small letter their place: `F1`, `B1`, `F1b`.
std::string drawing(const Schedule& schedule);

}  // namespace dtrain::parallel
