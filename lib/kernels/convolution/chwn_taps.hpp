#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/convolution/chwn_conv.hpp"
#include "kernels/products.hpp"

// What the sums of both sides and the weight's gradient have in common.

namespace dtrain::kernels {

using Offset = std::ptrdiff_t;

constexpr std::size_t kChwnChannels = 6;  // in a block

/// Accumulators of kChwnChannels x this many vectors fill the registers, but for those of the factors.
template <class Set>
constexpr std::size_t kChwnVectors = Set::kBytes == Avx512::kBytes ? 4 : 2;

/// How many of the channels that are left the next block has.
inline std::size_t block_of(std::size_t left) {
  return left >= kChwnChannels ? kChwnChannels : left == 5 ? 3 : left;
}

/// The taps of a kernel that reach inside the other side, along one dimension, for one place of a side:
/// `count` of them, of which the first reads the other side at `from` with the kernel's `weight`.
struct Taps {
  std::size_t weight = 0;
  std::size_t count = 0;
  Offset from = 0;
  bool same_weights(const Taps& other) const { return weight == other.weight && count == other.count; }
};

/// Of a place of the small side; `extent`: of the large one.
inline Taps taps_on_large(std::size_t place, std::size_t extent, const ChwnConv& size) {
  const auto first = static_cast<Offset>(place * size.stride) - static_cast<Offset>(size.padding);
  const Offset begin = std::max<Offset>(0, -first);
  const Offset end = std::min(static_cast<Offset>(size.kernel), static_cast<Offset>(extent) - first);
  if (end <= begin) return {};
  return {static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin), first + begin};
}

/// Of a place of the large side; `extent`: of the small one. Taps are a stride apart.
inline Taps taps_on_small(std::size_t place, std::size_t extent, const ChwnConv& size) {
  const std::size_t padded = place + size.padding;
  const std::size_t reach = (extent - 1) * size.stride;  // where the small side's last window begins
  const std::size_t least = padded > reach ? padded - reach : 0;
  const std::size_t last = std::min(size.kernel - 1, padded);
  std::size_t tap = padded % size.stride;
  if (tap < least) tap += (least - tap + size.stride - 1) / size.stride * size.stride;
  if (tap > last) return {};
  return {tap, (last - tap) / size.stride + 1, static_cast<Offset>((padded - tap) / size.stride)};
}

}  // namespace dtrain::kernels
