#pragma once

#include <span>
#include <vector>

#include "core/slice.hpp"
#include "optim/optimizer.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// One range for each parameter that the optimizer is to update as a whole, with the weight decay it gets.
/// `left_out`: a parameter that has none; null: all have one.
std::vector<optim::ParameterRange> update_ranges(const StrategyParts& parts, const FlatParameters& parameters,
                                                 const models::Parameter* left_out = nullptr);

/// What this rank counts of `held`, parts of the flat gradient, in norms: not what another rank of its tensor
/// group holds and counts as well.
std::vector<Range> counted_parts(const StrategyParts& parts, const FlatParameters& parameters,
                                 std::span<const Range> held);

/// The same where gradients are those of `held` alone, one part behind the other: ranges of these.
std::vector<Range> counted_in_shard(const StrategyParts& parts, const FlatParameters& parameters,
                                    std::span<const Range> held);

}  // namespace dtrain::parallel
