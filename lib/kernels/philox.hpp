#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dtrain::kernels {

/// What a random number is for. Part of the counter, so that two uses never share numbers; below 16.
enum class Purpose : std::uint32_t {
  initialisation = 1,
  dropout,
  teacher_forcing,
  augmentation,
  sampling,
  synthetic,
  compression,
  privacy
};

/// A stream of random numbers: a pure function of its key and an element's index, whatever rank computes it.
/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
struct RandomKey {
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::sampling;
  std::uint32_t major = 0;   ///< Step or epoch.
  std::uint32_t minor = 0;   ///< Micro-batch or sample id.
  std::uint32_t stream = 0;  ///< Layer number, or stream_of(parameter name).
};

/// A 32-bit name for a parameter or layer: FNV-1a of its global name.
constexpr std::uint32_t stream_of(std::string_view name) {
  std::uint32_t hash = 2166136261U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

/// The two key words and four counter words that Philox is given for one block.
struct PhiloxInput {
  std::array<std::uint32_t, 2> key;      ///< [low, high]
  std::array<std::uint32_t, 4> counter;  ///< [purpose and block, major, minor, stream]
};

/// Blocks that differ only in the lower half of this many bits share a key; more of them move the key on.
inline constexpr int kBlockBits = 28;

/// How a stream's block becomes Philox's input. The seed is the key. The counter holds major, minor and
/// stream whole, and in its first word the purpose (upper 4 bits) over the block's lower 28 bits; the block's
/// upper bits are added to the key's high word. Two (RandomKey, block) of one seed therefore never meet:
/// whatever differs is stored whole, in a place of its own.
constexpr PhiloxInput philox_input(const RandomKey& key, std::uint64_t block) {
  const auto low = static_cast<std::uint32_t>(block & ((1U << kBlockBits) - 1U));
  const auto high = static_cast<std::uint32_t>(block >> kBlockBits);
  return {{static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32) + high},
          {(static_cast<std::uint32_t>(key.purpose) << kBlockBits) | low, key.major, key.minor, key.stream}};
}

/// Philox4x32-10 itself: ten rounds over one counter.
std::array<std::uint32_t, 4> philox4x32(const PhiloxInput& input);

/// The four 32-bit words of block `block` of the stream; element i of a stream is word i % 4 of block i / 4.
std::array<std::uint32_t, 4> philox_block(const RandomKey& key, std::uint64_t block);

/// Writes `blocks` consecutive blocks of the stream, from `first_block` on, as 4 words each: `words` [4
/// blocks]. Eight at a time with AVX2 where the processor has it, with the same bits as without.
void philox_words(std::uint32_t* words, std::uint64_t blocks, const RandomKey& key,
                  std::uint64_t first_block);

/// Word to [0, 1): the upper 24 bits, exactly representable in float.
constexpr float to_unit(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1.0p-24F; }

}  // namespace dtrain::kernels
