#pragma once

#include <algorithm>
#include <cstdint>

namespace dtrain::data {

/// The most bytes that a compressed file of so many may come to. Files that compress better are made to fill
/// memory: tables come to 10 times their size, images to 5. Small ones may, whatever they are.
constexpr std::uint64_t most_unpacked(std::uint64_t packed) {
  constexpr std::uint64_t kMostTimesLarger = 20;
  constexpr std::uint64_t kAlwaysAllowed = std::uint64_t{128} << 20;
  return std::max(kAlwaysAllowed, kMostTimesLarger * packed);
}

}  // namespace dtrain::data
