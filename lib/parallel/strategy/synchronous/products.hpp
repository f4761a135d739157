#pragma once

#include <memory>

#include "parallel/gradients/product_sums.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// The sums of a model of linear layers whose ranks make each gradient together; null on all ranks: it is
/// another model, or the ranks share no memory, so that each makes gradients of its own samples. `shared`:
/// the ranks of the data axis share the memory of `parameters`. Only where the strategy makes products
/// (Abilities). Collective over the data axis.
std::unique_ptr<ProductSums> product_sums(const StrategyParts& parts, FlatParameters& parameters,
                                          bool shared);

}  // namespace dtrain::parallel
