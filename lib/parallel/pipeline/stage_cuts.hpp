#pragma once

#include <cstddef>
#include <vector>

#include "core/slice.hpp"
#include "models/model.hpp"

namespace dtrain::parallel {

/// How a model's layers lie on the ranks of a pipeline.
struct StageCuts {
  int ranks = 1;
  std::vector<Range> layers;  ///< Of each stage, in the model's order; stage s lies on rank s % ranks.

  int stages() const { return static_cast<int>(layers.size()); }
  int rank_of(int stage) const { return stage % ranks; }
  int stage_of(std::size_t layer) const;
  std::vector<std::size_t> layers_of(int rank) const;  ///< Ascending.
};

/// Cuts the layers, whose costs are in any one unit, into ranks x stages_per_rank runs so that the greatest
/// sum of a run is as small as can be; no run is empty. `slowness`: what a cost takes on each rank; empty:
/// they are alike. Throws Error (exit code 2) when there are more stages than layers; `model` is what it is
/// called there.
StageCuts cut_stages(const std::vector<double>& costs, int ranks, int stages_per_rank,
                     const std::string& model, const std::vector<double>& slowness = {});

/// What computes: dtrain's own kernels, on CPUs in full precision, or a library.
enum class Computed { by_own_kernels, by_a_library };

/// What each layer costs for `inputs`, forward and back, in FLOPs of its forward pass; the same on every
/// machine. A byte of parameters or activations, which pass through memory several times, costs as much as 50
/// FLOPs. With own kernels FLOPs are counted as they are done (Cost::spared_flops): then a byte of weights,
/// in the form that they are computed with, costs 9, and one of activations 22. A layer reads four bytes per
/// FLOP at most: of a table only the words that come.
///
/// 9 and 22 are fitted to the layers of vgg11 in micro-batches of 16 to 64 on a Xeon. By them it is cut in
/// two as by measured times, where FLOPs as counted give the slower stage .06 to .14 of a step's time more;
/// resnet18, gpt and conv_autoencoder are cut as well as by FLOPs, to .006, and cnn as well or better
/// (perf/parallel/layer_costs.cpp, perf/results/pipeline/layer-costs-2026-11-26-b.txt).
std::vector<double> work_of_layers(const models::Model& model, const std::vector<models::Shape>& inputs,
                                   Computed computed);

/// Cuts the model for one stage per rank by work_of_layers(), and layers of it in two (Model::cut_layer())
/// where a stage would end within one: as far as each such cut makes the greatest stage lighter by more than
/// a fiftieth. Throws as cut_stages().
StageCuts cut_within_layers(models::Model& model, const std::vector<models::Shape>& inputs, int ranks,
                            Computed computed);

}  // namespace dtrain::parallel
