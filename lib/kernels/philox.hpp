#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dtrain::kernels {

/// What a random number is for. Part of the key, so that two uses never share numbers.
enum class Purpose : std::uint32_t { initialisation = 1, dropout, teacher_forcing, augmentation, sampling, synthetic };

/// A stream of random numbers: a pure function of its key and an element's index, whatever rank computes it.
/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
struct RandomKey {
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::sampling;
  std::uint32_t major = 0;  ///< Step or epoch.
  std::uint32_t minor = 0;  ///< Micro-batch or sample id.
  std::uint32_t stream = 0; ///< Layer number, or stream_of(parameter name).
};

/// A 32-bit name for a parameter or layer: FNV-1a of its global name.
constexpr std::uint32_t stream_of(std::string_view name) {
  std::uint32_t hash = 2166136261U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

/// The four 32-bit words of block `block` of the stream; element i of a stream is word i % 4 of block i / 4.
std::array<std::uint32_t, 4> philox_block(const RandomKey& key, std::uint64_t block);

/// Word to [0, 1): the upper 24 bits, exactly representable in float.
constexpr float to_unit(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1.0p-24F; }

}  // namespace dtrain::kernels
