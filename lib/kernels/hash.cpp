#include <array>
#include <bit>
#include <cstring>

#include "kernels/reduce.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kChains = 4;                   // independent chains, so that multiplications overlap
constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;  // 2^64 over the golden ratio

/// The word is multiplied before it meets the lane, otherwise a change of its top bit could be undone by one
/// bit of the lane's next word.
std::uint64_t absorb(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * 0xD6E8FEB86659FD93U, 31) * kOdd;
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t hash_bytes(const void* bytes, std::size_t n, std::uint64_t seed) {
  const auto* from = static_cast<const unsigned char*>(bytes);
  std::array<std::uint64_t, kChains> lanes;
  for (std::size_t lane = 0; lane < kChains; ++lane) lanes[lane] = mix(seed + kOdd * (lane + 1));
  std::array<std::uint64_t, kChains> words;
  std::size_t done = 0;
  for (; done + sizeof words <= n; done += sizeof words) {
    std::memcpy(words.data(), from + done, sizeof words);
    for (std::size_t lane = 0; lane < kChains; ++lane) lanes[lane] = absorb(lanes[lane], words[lane]);
  }
  if (done < n) {
    words = {};
    std::memcpy(words.data(), from + done, n - done);
    for (std::size_t lane = 0; lane < kChains; ++lane) lanes[lane] = absorb(lanes[lane], words[lane]);
  }
  std::uint64_t hash = mix(n + seed);
  for (const std::uint64_t lane : lanes) hash = mix(hash * kOdd + lane);
  return hash;
}

}  // namespace dtrain::kernels
