#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dtrain::parallel {

/// In how many bits the parameters of copies travel: in their own type, or the difference to the values that
/// the copies agreed on last in 16 or 8.
enum class ExchangeType : std::uint8_t { full, bfloat16, int8 };
/// Throws Error (exit code 2) naming --exchange-type.
ExchangeType parse_exchange_type(std::string_view name);

/// Differences in 16 or 8 bits. bfloat16: each is rounded to the nearest. int8: kBlock values have a scale,
/// their largest size over 127, and each is the nearest multiple of it. A tie goes to the even one, so equal
/// values have equal messages. A difference that is not finite makes its block NaN. What rounding leaves out
/// is dropped: the next difference begins at values that all copies agree on.
class DifferenceCodec {
 public:
  static constexpr std::size_t kBlock = 256;

  explicit DifferenceCodec(ExchangeType type) : type_(type) {}  ///< Not full.

  /// Bytes of the message of `count` differences.
  std::size_t bytes(std::size_t count) const;
  /// `message`: of bytes(differences.size()).
  void encode(std::span<const float> differences, std::span<std::byte> message) const;
  /// Adds the differences of a message, times `factor`, to `sums`.
  void add(std::span<const std::byte> message, float factor, std::span<float> sums) const;

 private:
  ExchangeType type_;
};

}  // namespace dtrain::parallel
