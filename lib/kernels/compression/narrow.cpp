#include "kernels/compression/narrow.hpp"

#include <bit>
#include <cmath>

#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::uint32_t kSign = 0x8000'0000U;
constexpr std::uint32_t kInfinity = 0x7F80'0000U;
constexpr float kChances = 65536;

// Of float32 and half: what the bits of the exponents differ by, and the bits that a half has fewer.
constexpr int kFewerBits = 13;
constexpr std::uint32_t kHalfBias = 112U << 10;
constexpr std::uint32_t kSmallestNormal = 0x3880'0000U;  // 2^-14: below, a half has a fixed step
constexpr float kSteps = 0x1.0p24F;                      // of a half below that, in 1

/// Without a branch, which would keep loops from being vectorised.
inline std::uint32_t ones_if(bool condition) { return 0U - static_cast<std::uint32_t>(condition); }
inline std::uint32_t chosen(bool condition, std::uint32_t one, std::uint32_t other) {
  return other ^ ((one ^ other) & ones_if(condition));
}

}  // namespace

void narrow_to_bfloat16(std::uint16_t* out, const float* values, const std::uint16_t* chances,
                        std::size_t n) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < n; ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(values[i]);
      const std::uint32_t size = bits & ~kSign;
      const std::uint32_t up = size + chances[i];
      const std::uint32_t finite = chosen(up < kInfinity, up, kInfinity - 1);
      // A NaN whose upper half says infinity would become one.
      const std::uint32_t special = size | (ones_if(size > kInfinity) & 0x0040'0000U);
      out[i] = static_cast<std::uint16_t>((chosen(size < kInfinity, finite, special) | (bits & kSign)) >> 16);
    }
  });
}

void widen_bfloat16(float* out, const std::uint16_t* values, std::size_t n) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < n; ++i)
      out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(values[i]) << 16);
  });
}

void narrow_to_float16(std::uint16_t* out, const float* values, float factor, const std::uint16_t* chances,
                       std::size_t n) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < n; ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(values[i] * factor);
      const std::uint32_t size = bits & ~kSign;
      const std::uint32_t chance = chances[i];
      const std::uint32_t normal = ((size + (chance >> (16 - kFewerBits))) >> kFewerBits) - kHalfBias;
      // Both are computed; of a larger number the second is thrown away, but has to fit an int.
      const bool is_small = size < kSmallestNormal;
      const float steps = std::bit_cast<float>(chosen(is_small, size, kSmallestNormal)) * kSteps;
      const auto whole = static_cast<std::int32_t>(steps);
      const float rest = steps - static_cast<float>(whole);  // apart, so that none of its bits is lost
      const auto up =
          static_cast<std::int32_t>(rest + static_cast<float>(static_cast<std::int32_t>(chance)) / kChances);
      const auto small = static_cast<std::uint32_t>(whole + up);
      out[i] = static_cast<std::uint16_t>(chosen(is_small, small, normal) | ((bits & kSign) >> 16));
    }
  });
}

void widen_float16(float* out, const std::uint16_t* values, float factor, std::size_t n) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t bits = values[i];
      const std::uint32_t size = bits & 0x7FFFU;
      const float normal = std::bit_cast<float>((size + kHalfBias) << kFewerBits);
      const float small = static_cast<float>(static_cast<std::int32_t>(size)) / kSteps;
      const float chosen = size < 0x400U ? small : normal;
      out[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(chosen) | ((bits & 0x8000U) << 16)) * factor;
    }
  });
}

void narrow_to_int8(std::int8_t* out, const float* values, float scale, const std::uint16_t* chances,
                    std::size_t n) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    std::int8_t* const to = out;  // what is written may be anything, the captured values included
    const float* const from = values;
    const std::uint16_t* const up = chances;
    const float level_size = scale;
    const std::size_t count = n;
    for (std::size_t i = 0; i < count; ++i) {
      const float chance = static_cast<float>(static_cast<std::int32_t>(up[i])) / kChances;
      const float size = std::abs(from[i]) / level_size;
      const auto level = static_cast<std::int32_t>((size < 127.0F ? size : 127.0F) + chance);
      const auto sign =
          static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(from[i])) >> 31;  // -1: below 0
      to[i] = static_cast<std::int8_t>((level ^ sign) - sign);
    }
  });
}

void widen_int8(float* out, const std::int8_t* values, float scale, std::size_t n) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < n; ++i)
      out[i] = scale * static_cast<float>(static_cast<std::int32_t>(values[i]));
  });
}

}  // namespace dtrain::kernels
