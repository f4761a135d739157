#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace dtrain::kernels {

inline constexpr std::size_t kVectorBytes = 16;  ///< That a thread reads or writes by one instruction.

/// Neighbours in memory, read and written together.
template <class T, std::size_t kCount>
struct alignas(kCount * sizeof(T) < kVectorBytes ? kCount * sizeof(T) : kVectorBytes) Elements {
  static constexpr std::size_t kElements = kCount;
  T of[kCount];
};

/// 16 bytes at once.
template <class T>
using Vector = Elements<T, kVectorBytes / sizeof(T)>;

template <std::size_t kCount, class T>
__device__ Elements<T, kCount> loaded(const T* from) {
  return *reinterpret_cast<const Elements<T, kCount>*>(from);
}
/// `to`: in the GPU's own memory.
template <class T, std::size_t kCount>
__device__ void store(T* to, const Elements<T, kCount>& values) {
  constexpr bool kIsVectorOfHalves = sizeof(T) < sizeof(std::uint32_t) && sizeof(values) == sizeof(uint4);
  using Whole = std::conditional_t<kIsVectorOfHalves, uint4, Elements<T, kCount>>;
  Whole whole;
  std::memcpy(&whole, &values, sizeof whole);
  if constexpr (kIsVectorOfHalves) {
    __stwb(reinterpret_cast<Whole*>(to),
           whole);  // nvcc 13.0 makes of an assignment stores of one and two halves
  } else {
    *reinterpret_cast<Whole*>(to) = whole;
  }
}

/// Whether whole vectors can be read from all `pointers`; null is one that is not read.
inline bool are_aligned(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers)
    if (reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes != 0) return false;
  return true;
}

}  // namespace dtrain::kernels
