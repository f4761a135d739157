#pragma once

#include <cstdint>

#include "kernels/update.hpp"
#include "optim/optimizer.hpp"

namespace dtrain::optim {

/// The arguments of one update by Adam or AdamW, as `config` says. `step` counts from 1; `scale` multiplies
/// the gradients; `weight_decay` is that of the elements to be updated.
kernels::AdamUpdate adam_update_of(const OptimizerConfig& config, double scale, double learning_rate,
                                   std::int64_t step, double weight_decay);

}  // namespace dtrain::optim
