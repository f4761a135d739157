#pragma once

#include <array>
#include <cstdint>

#include "kernels/philox.hpp"

namespace dtrain::kernels {

// The constants of Philox4x32 and its Weyl sequence: Salmon et al. 2011, section 5.
inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53U;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57U;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9U;
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85U;

/// philox4x32() for code that cannot call it: constexpr, so that a GPU may run it, too.
constexpr std::array<std::uint32_t, 4> philox_rounds(const PhiloxInput& input) {
  std::uint32_t k0 = input.key[0];
  std::uint32_t k1 = input.key[1];
  std::uint32_t c0 = input.counter[0];
  std::uint32_t c1 = input.counter[1];
  std::uint32_t c2 = input.counter[2];
  std::uint32_t c3 = input.counter[3];
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * c0;
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(product0);
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return {c0, c1, c2, c3};
}

}  // namespace dtrain::kernels
