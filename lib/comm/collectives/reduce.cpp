#include "comm/collectives/reduce.hpp"

#include <algorithm>
#include <cstring>

#include "comm/collectives/reduce_kernels.hpp"

namespace dtrain::comm {
namespace {

constexpr std::size_t kBlockBytes = 8 << 10;  // stays in the first-level cache together with its sources

ReduceKernels kernels(DataType type, ReduceOp op) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return avx2_kernels(type, op);
#endif
  return baseline_kernels(type, op);
}

std::byte* at(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }

}  // namespace

void reduce_into(void* accumulator, const void* addend, std::size_t count, DataType type, ReduceOp op) {
  kernels(type, op).into(accumulator, addend, count);
}

void reduce_to(void* result, std::span<void* const> inputs, std::size_t count, DataType type, ReduceOp op) {
  const ReduceKernels loops = kernels(type, op);
  const std::size_t size = size_of(type);
  if (inputs.size() == 1 && result != inputs[0]) std::memcpy(result, inputs[0], count * size);
  if (inputs.size() < 2) return;
  for (std::size_t begin = 0; begin < count; begin += kBlockBytes / size) {
    const std::size_t n = std::min(count - begin, kBlockBytes / size);
    const std::size_t offset = begin * size;
    if (result == inputs[0]) {
      loops.into(at(result, offset), at(inputs[1], offset), n);
    } else {
      loops.combine(at(result, offset), at(inputs[0], offset), at(inputs[1], offset), n);
    }
    for (const void* const input : inputs.subspan(2)) {
      loops.into(at(result, offset), static_cast<const std::byte*>(input) + offset, n);
    }
  }
}

void reduce_among(std::span<void* const> buffers, std::size_t count, DataType type, ReduceOp op) {
  if (buffers.size() < 2) return;
  const ReduceKernels loops = kernels(type, op);
  if (buffers.size() == 2) {
    loops.pair(buffers[0], buffers[1], count);
    return;
  }
  const std::size_t size = size_of(type);
  for (std::size_t begin = 0; begin < count; begin += kBlockBytes / size) {
    const std::size_t n = std::min(count - begin, kBlockBytes / size);
    const std::size_t offset = begin * size;
    std::byte* const result = at(buffers[0], offset);
    for (std::size_t k = 1; k < buffers.size(); ++k) loops.into(result, at(buffers[k], offset), n);
    for (std::size_t k = 1; k < buffers.size(); ++k) std::memcpy(at(buffers[k], offset), result, n * size);
  }
}

}  // namespace dtrain::comm
