#pragma once

#include <memory>
#include <vector>

#include "optim/held_ranges.hpp"
#include "optim/optimizer.hpp"

namespace dtrain::optim {

/// The same rules in a device's memory, by LibTorch's fused updates: one pass, and no wait. As
/// make_optimizer(), whose checks have been made; step() leaves the gradients multiplied by its scale.
std::unique_ptr<Optimizer> make_fused_optimizer(const OptimizerConfig& config,
                                                const std::vector<ParameterRange>& ranges,
                                                const at::TensorOptions& options,
                                                const StateAllocator& allocate, HeldRanges held);

}  // namespace dtrain::optim
