#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/compression/block_codes.hpp"
#include "optim/optimizer.hpp"

namespace dtrain::optim {

/// A parameter of fewer values keeps its state in full: it saves little, and biases and norms need it.
/// Source: Dettmers et al. 2022, section 2 (there 4096 as well).
inline constexpr std::int64_t kLeastCoded = 4096;

/// Bytes of a value of state in 8 bits: its code, and its part of a scale.
inline constexpr double kCodedBytes = 1 + sizeof(float) / static_cast<double>(kernels::kCodeBlock);

/// The same rules in float on the CPU, with a state in 8 bits: kernels::encode_block() of each 256 values of
/// a parameter, or of a held part of one. An update decodes a block, updates with full numbers, and encodes
/// what it leaves. As make_optimizer(), whose checks have been made.
std::unique_ptr<Optimizer> make_coded_optimizer(const OptimizerConfig& config, std::int64_t count,
                                                const std::vector<ParameterRange>& ranges,
                                                const at::TensorOptions& options,
                                                const std::vector<Range>& held);

}  // namespace dtrain::optim
