#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/philox.hpp"

namespace dtrain::parallel {

/// What a number is on its way.
enum class WireType : std::uint8_t { float32, bfloat16, float16, int8 };

/// Numbers in 16 or 8 bits. kBlock of them share a scale. int8: the largest size over 127, and each is a
/// multiple of it. float16: a power of two that leaves room below the largest half, so that none is too large
/// or all too small. bfloat16 has float32's range, and no scales. float32 is what it is. What is not finite
/// makes its block NaN, or in bfloat16 stays as it is.
class BlockCodec {
 public:
  static constexpr std::size_t kBlock = 256;

  explicit BlockCodec(WireType type) : type_(type) {}

  /// Bytes of the message of `count` numbers.
  std::size_t bytes(std::size_t count) const;

  /// Rounds to the nearest, and a tie to the even one, so equal numbers have equal messages. Not float16.
  /// `message`: of bytes(values.size()).
  void encode(std::span<const float> values, std::span<std::byte> message) const;
  /// Rounds up or down by chance, so that the mean over many seeds is the number itself. Number i of the
  /// span is element `first` + i of the stream `chances`, if `first` is a multiple of 8.
  void encode(std::span<const float> values, std::span<std::byte> message, const kernels::RandomKey& chances,
              std::uint64_t first) const;

  /// The numbers of a message.
  void decode(std::span<const std::byte> message, std::span<float> values) const;
  /// Adds the numbers of a message, times `factor`, to `sums`.
  void add(std::span<const std::byte> message, float factor, std::span<float> sums) const;

 private:
  struct Block;
  template <class Body>
  void for_blocks(std::size_t count, const Body& body) const;
  void decode_block(std::span<const std::byte> message, const Block& block, float* values) const;

  WireType type_;
};

}  // namespace dtrain::parallel
