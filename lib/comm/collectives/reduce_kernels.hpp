#pragma once

#include <cstddef>

#include "comm/types.hpp"

namespace dtrain::comm {

/// The loops of one type and operation, for one instruction set.
struct ReduceKernels {
  void (*into)(void* accumulator, const void* addend, std::size_t count) = nullptr;
  void (*pair)(void* first, void* second, std::size_t count) = nullptr;  ///< Both become op(first, second).
  void (*combine)(void* result, const void* first, const void* second, std::size_t count) = nullptr;
};

ReduceKernels baseline_kernels(DataType type, ReduceOp op);
ReduceKernels avx2_kernels(DataType type, ReduceOp op);  ///< Only where the processor has AVX2.

}  // namespace dtrain::comm
