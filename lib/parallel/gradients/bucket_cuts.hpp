#pragma once

#include <cstdint>
#include <vector>

#include "core/slice.hpp"
#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// Gradients that travel together: runs of `entries`, which ascend, as ranges of the flat gradient. A bucket
/// has `bucket_bytes` at most, or one parameter; 0 chooses. `element_bytes`: of a gradient's element.
std::vector<Range> cut_buckets(const std::vector<FlatParameters::Entry>& entries, std::int64_t bucket_bytes,
                               std::int64_t element_bytes);

/// By entry: the index of its bucket.
std::vector<std::size_t> buckets_of(const std::vector<FlatParameters::Entry>& entries,
                                    const std::vector<Range>& buckets);

/// By entry: how often a backward pass meets it in a micro-batch. `met_again`: parameters of more than one
/// layer, once for each further layer; those without an entry do not count.
std::vector<int> uses_of(const std::vector<FlatParameters::Entry>& entries,
                         const std::vector<const models::Parameter*>& met_again);

}  // namespace dtrain::parallel
