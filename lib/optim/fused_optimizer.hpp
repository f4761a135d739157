#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "optim/held_ranges.hpp"
#include "optim/optimizer.hpp"

namespace dtrain::optim {

/// Values of each state tensor that are in the device's memory at a time, where they lie in the host's.
inline constexpr std::int64_t kOffloadedChunk = std::int64_t{4} << 20;

/// The same rules in a device's memory, by LibTorch's fused updates: one pass, and no wait. As
/// make_optimizer(), whose checks have been made; step() leaves the gradients multiplied by its scale.
///
/// With OptimizerConfig::state_on_host() the state lies in the host's memory, pinned where the device is a
/// GPU, and `allocate` is not used. An update brings it chunk by chunk, computes what it would compute with
/// state of the device's, in the same bits, and takes it back: 4 bytes in and out for each value.
/// (ZeRO-Offload computes on the CPU instead, which sends half of that, and has the CPU's speed and bits. Ren
/// et al., USENIX ATC 2021.)
std::unique_ptr<Optimizer> make_fused_optimizer(const OptimizerConfig& config,
                                                const std::vector<ParameterRange>& ranges,
                                                const at::TensorOptions& options,
                                                const StateAllocator& allocate, HeldRanges held);

}  // namespace dtrain::optim
