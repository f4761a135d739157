#include "kernels/element.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dtrain::kernels {
namespace {

/// The nearest number of the type by its definition: `fraction_bits` bits after the leading one, exponents
/// from `least`.
double nearest(double value, int fraction_bits, int least, double infinite_from) {
  if (value == 0.0) return value;
  if (std::abs(value) >= infinite_from) return std::copysign(std::numeric_limits<double>::infinity(), value);
  const int exponent = std::max(std::ilogb(value), least);
  const double unit = std::ldexp(1.0, exponent - fraction_bits);
  return std::nearbyint(value / unit) * unit;  // to nearest even, the mode that a program starts in
}

/// Every 4,099th float, so that all exponents and many ties occur, and those around each tie of a few
/// numbers.
template <class Call>
void over_floats(const Call& call) {
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFFULL; bits += 4099)
    call(float_of(static_cast<std::uint32_t>(bits)));
  for (const std::uint32_t near :
       {0x3F808000U, 0x3F818000U, 0x38800000U, 0x387FE000U, 0x33000000U, 0x477FF000U, 0x7F7F8000U,
        0x3F801000U, 0x3F803000U, 0x337FFFFFU, 0x33C00000U}) {
    for (std::uint32_t bits = near - 2; bits != near + 3; ++bits) {
      call(float_of(bits));
      call(-float_of(bits));
    }
  }
}

template <class T>
void expect_nearest(int fraction_bits, int least, double infinite_from) {
  over_floats([&](float value) {
    const float rounded = to_float(from_float<T>(value));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(rounded));
      return;
    }
    const double wanted =
        std::isinf(value) ? double{value} : nearest(double{value}, fraction_bits, least, infinite_from);
    ASSERT_EQ(double{rounded}, wanted) << std::hexfloat << value;
    ASSERT_EQ(std::signbit(rounded), std::signbit(value)) << std::hexfloat << value;
  });
}

TEST(ElementTest, Bfloat16RoundsToNearestEven) { expect_nearest<Bfloat16>(7, -126, 0x1.ffp127); }

TEST(ElementTest, Float16RoundsToNearestEven) { expect_nearest<Float16>(10, -14, 65520.0); }

TEST(ElementTest, SixteenBitNumbersComeBackAsTheyWere) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)};
    const Bfloat16 brain{static_cast<std::uint16_t>(bits)};
    ASSERT_TRUE(std::isnan(to_float(half)) || from_float<Float16>(to_float(half)).bits == bits) << bits;
    ASSERT_TRUE(std::isnan(to_float(brain)) || from_float<Bfloat16>(to_float(brain)).bits == bits) << bits;
  }
}

}  // namespace
}  // namespace dtrain::kernels
