#pragma once

#include <cstdint>

#include "checkpoint/manifest.hpp"
#include "train/config/config.hpp"
#include "train/loop/evaluation.hpp"

namespace dtrain::train {

/// Which of a run's validations has the best model, and when more training is useless (early stopping). It
/// has no state: all follows from the step and the best so far, so that a resumed run decides alike.
class ModelSelection {
 public:
  /// `steps_per_epoch`: at least 1. Throws Error (exit code 2) where the model or the dataset lacks what
  /// the options need: an accuracy, a validation split.
  ModelSelection(const ValidationConfig& config, std::int64_t steps_per_epoch, Scoring scoring,
                 std::int64_t validation_samples);

  /// Whether the model is validated after this step, which is not its epoch's last.
  bool due_within_epoch(std::int64_t step) const;

  /// Whether `scores` are better than those of `best`: those of any step are better than none.
  bool improves(const Scores& scores, const checkpoint::BestSoFar& best) const;

  /// Whether as many validations as `--early-stopping` says, up to `step`, have found no better model.
  bool is_exhausted(std::int64_t step, const checkpoint::BestSoFar& best) const;

 private:
  std::int64_t validations(std::int64_t step) const;  // up to this step

  bool by_accuracy_;
  std::int64_t patience_;
  std::int64_t every_steps_;  // 0: only after epochs
  std::int64_t steps_per_epoch_;
};

}  // namespace dtrain::train
