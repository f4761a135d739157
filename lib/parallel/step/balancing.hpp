#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "parallel/step/ownership.hpp"

namespace dtrain::parallel {

/// `--balance data`: the micro-batches of coming steps are dealt to the ranks of the data axis by what a
/// micro-batch takes on each of them, and again when that changes. All ranks compare their times after
/// kWindow steps, and less often while nothing is to be changed. They find the same ownership.
///
/// It has no state that a checkpoint must keep: which rank computes a micro-batch does not change the sum. A
/// run that goes on begins evenly. Source of the idea: Chen et al., "Semi-dynamic load balancing", SoCC 2020
/// (LB-BSP), which resizes batches instead.
class Balancing {
 public:
  /// Steps whose median counts; and between two comparisons, at first and after a change.
  static constexpr std::size_t kWindow = 8;
  static constexpr std::size_t kMostBetween = 32;  ///< Steps between two comparisons: they cost a message.
  /// Of the time of a step's micro-batches, what another ownership must save: less is noise.
  static constexpr double kLeastGain = 0.1;

  struct Facts {
    int micro_batches = 1;  ///< Of a step.
    int data_ranks = 1;     ///< At least 2.
    /// A new ownership holds from the step on that is so far behind the one just done: before that a loader
    /// may have read what the old one says.
    std::int64_t lead = 1;
    /// Gives all ranks what each data rank says; of the ranks of a copy the largest. Collective over all
    /// ranks.
    std::function<std::vector<double>(double mine)> gather;
    /// From step `first` on; all ranks call it alike. `words`: for the log and the run's events.
    std::function<void(std::int64_t first, const Ownership& owned, const std::string& words)> change;
  };
  explicit Balancing(Facts facts);

  /// After each step, on all ranks. `seconds`: what this rank's micro-batches took, without waits for other
  /// ranks; `micro_batches`: how many there were.
  void step(std::int64_t step, double seconds, std::size_t micro_batches);

 private:
  void compare(std::int64_t step);

  Facts facts_;
  Ownership owned_;
  std::deque<double> seconds_;  // of a micro-batch, in the newest kWindow steps that had one
  std::size_t between_ = kWindow;
  std::size_t waited_ = 0;  // steps since the last comparison
};

}  // namespace dtrain::parallel
