#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/import/originals.hpp"
#include "data/shards/column.hpp"
#include "data/synthetic/synthetic.hpp"

namespace dtrain::data {

/// Samples [first, first + samples) of the endless synthetic set: the arrays of its task, in arrays_of_task's
/// order. A sample depends on the spec and its number alone (language modelling: on where its split begins
/// too).
std::vector<std::shared_ptr<const Column>> synthetic_columns(const SyntheticSpec& spec, std::int64_t first,
                                                             std::int64_t samples);

/// All splits. Throws usage_error for a spec that cannot work.
Originals synthetic_originals(const SyntheticSpec& spec);

}  // namespace dtrain::data
