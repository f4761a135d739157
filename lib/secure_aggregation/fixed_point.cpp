#include "secure_aggregation/fixed_point.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.hpp"

namespace dtrain::secure_aggregation {
namespace {

constexpr const char* kSubject = "secure aggregation";

}  // namespace

void FixedPoint::validate(int clients, double noise) const {
  if (ring_bits != 32 && ring_bits != 64) {
    throw usage_error(fmt::format("a ring of {} bits does not exist", ring_bits), kSubject,
                      "use 32 or 64 bits");
  }
  if (value_bits < 2 || value_bits > 32 || weight_bits < 0 || weight_bits > 32) {
    throw usage_error(
        fmt::format("{} bits of a value and {} of a weight cannot be used", value_bits, weight_bits),
        kSubject, "give values 2 to 32 bits and weights 0 to 32");
  }
  if (!(largest > 0) || !std::isfinite(largest)) {
    throw usage_error("the largest value is no positive number", kSubject,
                      "set it to the clip of the updates");
  }
  const int client_bits = std::bit_width(static_cast<unsigned>(clients - 1));
  // The sum stays below 2^(value_bits - 1 + weight_bits + client_bits), and 2^(ring_bits - 1) would be
  // negative.
  const double free = std::exp2(ring_bits - 1) - std::exp2(value_bits - 1 + weight_bits + client_bits);
  if (!(free >= noise)) {
    throw usage_error(
        fmt::format(
            "a sum of {} clients would overflow the ring of {} bits: values take {} bits, weights {}, the "
            "number of clients {}{}",
            clients, ring_bits, value_bits, weight_bits, client_bits,
            noise > 0 ? ", and noise has to fit too" : ""),
        kSubject,
        ring_bits == 32 ? "use a ring of 64 bits, or fewer bits of a value" : "use fewer bits of a value");
  }
}

Encoded encode(const FixedPoint& format, std::span<const float> values, std::uint64_t weight,
               const char* where) {
  if (weight < 1 || weight > format.largest_weight()) {
    throw usage_error(fmt::format("a weight is not in [1, {}]", format.largest_weight()), where,
                      "give weights more bits, or scale them");
  }
  Encoded encoded;
  encoded.words.resize((values.size() + 1) * static_cast<std::size_t>(format.ring_bits / 8));
  const auto most = static_cast<double>(format.largest_integer());
  const double scale = most / format.largest;
  for (std::size_t i = 0; i < values.size(); ++i) {
    double scaled = values[i] * scale;
    if (std::isnan(scaled)) {
      throw usage_error("a value is not a number", where, "leave this client out of the round");
    }
    if (std::abs(values[i]) > format.largest) {
      scaled = std::copysign(most, scaled);
      ++encoded.saturated;
    }
    set_element(format, encoded.words, i, std::llrint(scaled) * static_cast<std::int64_t>(weight));
  }
  set_element(format, encoded.words, values.size(), static_cast<std::int64_t>(weight));
  return encoded;
}

std::int64_t element(const FixedPoint& format, View words, std::size_t index) {
  if (format.ring_bits == 32) {
    std::int32_t value = 0;
    std::memcpy(&value, words.subspan(4 * index, 4).data(), 4);
    return value;
  }
  std::int64_t value = 0;
  std::memcpy(&value, words.subspan(8 * index, 8).data(), 8);
  return value;
}

void set_element(const FixedPoint& format, std::span<std::byte> words, std::size_t index,
                 std::int64_t value) {
  const auto bytes = static_cast<std::size_t>(format.ring_bits / 8);  // the low ones: modulo 2^ring_bits
  std::memcpy(words.subspan(bytes * index, bytes).data(), &value, bytes);
}

double number(const FixedPoint& format, std::int64_t sum, std::int64_t weight) {
  return static_cast<double>(sum) / static_cast<double>(weight) * format.largest /
         static_cast<double>(format.largest_integer());
}

}  // namespace dtrain::secure_aggregation
