#pragma once

#include <cstdint>

#include "parallel/step/step.hpp"
#include "record/step_clock.hpp"

namespace dtrain::train {

/// What the steps of an epoch add up to.
struct EpochSums {
  parallel::StepTotals own;       ///< This rank's steps.
  parallel::StepTotals total;     ///< All ranks'.
  record::PhaseTotals phases;     ///< This rank's time.
  std::uint64_t sample_hash = 0;  ///< Of the samples this rank used.
  std::int64_t samples = 0;       ///< Over all ranks.
  double earlier_s = 0;           ///< That an earlier part of the run has trained in this epoch.
  double learning_rate = 0;       ///< Of the last step.

  /// Adds a step. `hash`: data::sample_hash() of the samples that this rank counts.
  void add(const parallel::StepOutcome& outcome, const record::PhaseTotals& step_phases, double rate,
           std::uint64_t hash) {
    own.add_samples(outcome.own);
    total.add_samples(outcome.total);
    phases += step_phases;
    sample_hash += hash;
    learning_rate = rate;
  }
};

}  // namespace dtrain::train
