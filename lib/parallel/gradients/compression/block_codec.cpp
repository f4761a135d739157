#include "parallel/gradients/compression/block_codec.hpp"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.hpp"
#include "kernels/compression/narrow.hpp"

namespace dtrain::parallel {
namespace {

constexpr float kMostLevels = 127;
constexpr int kLargestHalf = 14;  // a half below 2^15 has room to be rounded up
constexpr int kMostFactor = 126;  // of which the inverse is a number as well

std::size_t blocks_of(std::size_t count) { return (count + BlockCodec::kBlock - 1) / BlockCodec::kBlock; }

bool has_scales(WireType type) { return type == WireType::float16 || type == WireType::int8; }

/// Bytes of a number.
std::size_t width_of(WireType type) {
  if (type == WireType::float32) return 4;
  return type == WireType::int8 ? 1 : 2;
}

/// The largest size; NaN where a number is not finite.
float largest_of(std::span<const float> block) {
  float largest = 0;
  bool finite = true;
  for (const float value : block) {
    finite &= std::isfinite(value);
    largest = std::max(largest, std::abs(value));
  }
  return finite ? largest : std::numeric_limits<float>::quiet_NaN();
}

/// What the numbers of a block are multiples of. 0: all are 0.
float scale_of(WireType type, std::span<const float> block) {
  const float largest = largest_of(block);
  if (type == WireType::int8 || !(largest > 0)) return largest / kMostLevels;
  return std::ldexp(1.0F, -std::min(kLargestHalf - std::ilogb(largest), kMostFactor));
}

void quantise(std::span<const float> block, float scale, std::int8_t* levels) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    const float level = std::nearbyint(block[i] / scale);
    levels[i] = static_cast<std::int8_t>(std::clamp(level, -kMostLevels, kMostLevels));
  }
}

/// 16 random bits for each number of a block.
class Chances {
 public:
  static constexpr std::size_t kPerBlock = 8;  // of Philox

  Chances(const kernels::RandomKey& key, std::uint64_t first) {
    kernels::philox_words(words_.data(), words_.size() / 4, key, first / kPerBlock);
    std::memcpy(chances_.data(), words_.data(), sizeof chances_);
  }
  const std::uint16_t* data() const { return chances_.data(); }

 private:
  std::array<std::uint32_t, BlockCodec::kBlock / 2> words_;
  std::array<std::uint16_t, BlockCodec::kBlock> chances_;
};

}  // namespace

/// Some numbers, and where their message has them.
struct BlockCodec::Block {
  std::size_t begin;
  std::size_t count;
  std::size_t scale;   ///< Byte of the message; not in bfloat16.
  std::size_t values;  ///< Likewise.
};

template <class Body>
void BlockCodec::for_blocks(std::size_t count, const Body& body) const {
  const std::size_t blocks = blocks_of(count);
  const std::size_t scales = has_scales(type_) ? blocks * sizeof(float) : 0;
  const std::size_t width = width_of(type_);
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t begin = block * kBlock;
    body(Block{begin, std::min(kBlock, count - begin), block * sizeof(float), scales + begin * width});
  }
}

std::size_t BlockCodec::bytes(std::size_t count) const {
  return (has_scales(type_) ? blocks_of(count) * sizeof(float) : 0) + width_of(type_) * count;
}

void BlockCodec::encode(std::span<const float> values, std::span<std::byte> message) const {
  require(type_ != WireType::float16, "is rounded by chance only", {.subject = "a message of halves"});
  for_blocks(values.size(), [&](const Block& block) {
    const auto part = values.subspan(block.begin, block.count);
    auto* const place = message.data() + block.values;
    if (type_ == WireType::float32) {
      std::memcpy(place, part.data(), part.size_bytes());
      return;
    }
    if (type_ == WireType::bfloat16) {
      for (std::size_t i = 0; i < part.size(); ++i) {
        const c10::BFloat16 value(part[i]);
        std::memcpy(place + i * sizeof value, &value, sizeof value);
      }
      return;
    }
    const float scale = scale_of(type_, part);
    std::memcpy(message.data() + block.scale, &scale, sizeof scale);
    if (scale > 0) {
      quantise(part, scale, reinterpret_cast<std::int8_t*>(place));
    } else {
      std::memset(place, 0, block.count);
    }
  });
}

void BlockCodec::encode(std::span<const float> values, std::span<std::byte> message,
                        const kernels::RandomKey& chances, std::uint64_t first) const {
  if (type_ == WireType::float32) return encode(values, message);
  for_blocks(values.size(), [&](const Block& block) {
    const auto part = values.subspan(block.begin, block.count);
    auto* const place = message.data() + block.values;
    const Chances of_block(chances, first + block.begin);
    std::array<std::uint16_t, kBlock> halves;  // the message may not be aligned
    if (type_ == WireType::bfloat16) {
      kernels::narrow_to_bfloat16(halves.data(), part.data(), of_block.data(), part.size());
      std::memcpy(place, halves.data(), 2 * part.size());
      return;
    }
    const float scale = scale_of(type_, part);
    std::memcpy(message.data() + block.scale, &scale, sizeof scale);
    if (!(scale > 0)) {
      std::memset(place, 0, width_of(type_) * part.size());
    } else if (type_ == WireType::int8) {
      kernels::narrow_to_int8(reinterpret_cast<std::int8_t*>(place), part.data(), scale, of_block.data(),
                              part.size());
    } else {
      kernels::narrow_to_float16(halves.data(), part.data(), 1 / scale, of_block.data(), part.size());
      std::memcpy(place, halves.data(), 2 * part.size());
    }
  });
}

void BlockCodec::decode_block(std::span<const std::byte> message, const Block& block, float* values) const {
  const auto* const place = message.data() + block.values;
  float scale = 1;
  if (type_ == WireType::float32) {
    std::memcpy(values, place, block.count * sizeof(float));
    return;
  }
  if (has_scales(type_)) std::memcpy(&scale, message.data() + block.scale, sizeof scale);
  if (type_ == WireType::int8) {
    kernels::widen_int8(values, reinterpret_cast<const std::int8_t*>(place), scale, block.count);
    return;
  }
  std::array<std::uint16_t, kBlock> halves;
  std::memcpy(halves.data(), place, 2 * block.count);
  if (type_ == WireType::bfloat16) {
    kernels::widen_bfloat16(values, halves.data(), block.count);
  } else {
    kernels::widen_float16(values, halves.data(), scale, block.count);
  }
}

void BlockCodec::decode(std::span<const std::byte> message, std::span<float> values) const {
  for_blocks(values.size(),
             [&](const Block& block) { decode_block(message, block, values.data() + block.begin); });
}

void BlockCodec::add(std::span<const std::byte> message, float factor, std::span<float> sums) const {
  std::array<float, kBlock> values;
  for_blocks(sums.size(), [&](const Block& block) {
    decode_block(message, block, values.data());
    for (std::size_t i = 0; i < block.count; ++i) sums[block.begin + i] += factor * values[i];
  });
}

}  // namespace dtrain::parallel
