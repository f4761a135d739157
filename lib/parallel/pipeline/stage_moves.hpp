#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/pipeline/stage_cuts.hpp"

namespace dtrain::parallel {

/// What was measured of a pipeline.
struct StageCosts {
  std::vector<double> layers;    ///< Of each layer, in any one unit; empty: nothing was measured.
  std::vector<double> slowness;  ///< Of each rank of the pipeline: its time over the cost of its layers.
};

/// Layers that should lie on other ranks.
struct StageMove {
  StageCosts costs;
  StageCuts cuts;     ///< Where they should lie.
  double now_s = 0;   ///< What the slowest rank takes for a step as they lie,
  double then_s = 0;  ///< and as they should.
};

/// Of the time of the slowest rank, what a move must save: it costs a checkpoint and a new start of the
/// model.
inline constexpr double kLeastGainOfMove = 0.1;

/// Whether layers should move, by what a step takes now. `layers`: the cost of each; `seconds`: that each
/// rank of the pipeline computed in a step, without waits. The time that the costs do not explain counts as
/// the slowness of the rank. Empty: they lie well, or a time is not known. A pure function: all ranks find
/// the same.
std::optional<StageMove> move_layers(const StageCuts& now, const std::vector<double>& layers,
                                     std::span<const double> seconds, const std::string& model);

}  // namespace dtrain::parallel
