#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "parallel/gradients/compression/block_codec.hpp"

namespace dtrain::parallel {

/// In how many bits the parameters of copies travel: in their own type, or the difference to the values that
/// the copies agreed on last in 16 or 8.
enum class ExchangeType : std::uint8_t { full, bfloat16, int8 };
/// Throws Error (exit code 2) naming --exchange-type.
ExchangeType parse_exchange_type(std::string_view name);

/// Differences in 16 or 8 bits, each rounded to the nearest. What rounding leaves out is dropped: the next
/// difference begins at values that all copies agree on.
class DifferenceCodec {
 public:
  static constexpr std::size_t kBlock = BlockCodec::kBlock;

  explicit DifferenceCodec(ExchangeType type);  ///< Not full.

  /// Bytes of the message of `count` differences.
  std::size_t bytes(std::size_t count) const { return blocks_.bytes(count); }
  /// `message`: of bytes(differences.size()).
  void encode(std::span<const float> differences, std::span<std::byte> message) const {
    blocks_.encode(differences, message);
  }
  /// Adds the differences of a message, times `factor`, to `sums`.
  void add(std::span<const std::byte> message, float factor, std::span<float> sums) const {
    blocks_.add(message, factor, sums);
  }

 private:
  BlockCodec blocks_;
};

}  // namespace dtrain::parallel
