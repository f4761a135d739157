#pragma once

#include <cstddef>
#include <span>

#include "comm/types.hpp"

namespace dtrain::comm {

/// accumulator[i] = op(accumulator[i], addend[i]). The 16-bit types are summed in float and rounded once, to
/// nearest even. max and min give NaN if either is NaN. Uses AVX2 where the processor has it, with the same
/// bits as without.
void reduce_into(void* accumulator, const void* addend, std::size_t count, DataType type, ReduceOp op);

/// result[i] = op over k, in order of k, of inputs[k][i]; `result` may be inputs[0].
void reduce_to(void* result, std::span<void* const> inputs, std::size_t count, DataType type, ReduceOp op);

/// The same in place: every buffers[k][i] becomes op over all k. Buffers do not overlap.
void reduce_among(std::span<void* const> buffers, std::size_t count, DataType type, ReduceOp op);

}  // namespace dtrain::comm
