#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/pipeline/stage_moves.hpp"

namespace dtrain::parallel {

/// `--balance dynamic` within a run: what the ranks of a pipeline take for their layers, and after an epoch
/// whether layers should move between them.
class StageBalancing {
 public:
  /// Steps whose median counts, the newest; with fewer in an epoch nothing moves.
  static constexpr std::size_t kMostSteps = 32;
  static constexpr std::size_t kFewestSteps = 8;

  struct Facts {
    const StageCuts& cuts;  ///< Borrowed, as `layer_costs`.
    const std::vector<double>& layer_costs;
    std::string model;
    /// Gives all ranks what each rank of the pipeline says, of all copies the largest. Collective.
    std::function<std::vector<double>(double mine)> gather;
  };
  explicit StageBalancing(Facts facts) : facts_(std::move(facts)) {}

  /// After each step. `seconds`: that this rank computed, without waits for others.
  void step(double seconds);

  struct Decision {
    StageMove move;
    std::string words;  ///< For the log and the run's events.
  };
  /// After epoch `epoch`: whether layers should move; the same on all ranks. Collective.
  std::optional<Decision> after_epoch(int epoch);

 private:
  Facts facts_;
  std::deque<double> seconds_;
};

}  // namespace dtrain::parallel
