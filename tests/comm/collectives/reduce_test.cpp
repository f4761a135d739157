#include "comm/collectives/reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "comm/collectives/reduce_kernels.hpp"

namespace dtrain::comm {
namespace {

constexpr DataType kTypes[] = {DataType::float32, DataType::float64, DataType::bfloat16,
                               DataType::float16, DataType::int32,   DataType::int64};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::min};

/// The value of a half from the definition in IEEE 754-2008, section 3.4.
double half_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

/// The half nearest to `value`, ties to even, found by search.
std::uint16_t nearest_half(double value) {
  if (std::isnan(value)) return 0x7E00;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  if (magnitude >= 65520.0) return static_cast<std::uint16_t>(sign | 0x7C00);
  int low = 0;
  int high = 0x7BFF;
  while (low < high) {  // greatest half that is not above
    const int middle = (low + high + 1) / 2;
    if (half_value(static_cast<std::uint16_t>(middle)) <= magnitude)
      low = middle;
    else
      high = middle - 1;
  }
  const double below = magnitude - half_value(static_cast<std::uint16_t>(low));
  const double above =
      low == 0x7BFF ? 65536.0 - magnitude : half_value(static_cast<std::uint16_t>(low + 1)) - magnitude;
  const bool up = above < below || (above == below && low % 2 == 1);
  return static_cast<std::uint16_t>(sign | (low + (up ? 1 : 0)));
}

TEST(ReduceTest, SumsHalvesAsFloatRoundedOnce) {
  std::mt19937 generator(1);
  std::vector<std::uint16_t> a;
  std::vector<std::uint16_t> b;
  for (int bits = 0; bits < 65536; ++bits) {
    a.push_back(static_cast<std::uint16_t>(bits));
    b.push_back(0);  // each value must survive
    a.push_back(static_cast<std::uint16_t>(bits));
    b.push_back(static_cast<std::uint16_t>(generator()));
  }
  std::vector<std::uint16_t> sum = a;
  reduce_into(sum.data(), b.data(), sum.size(), DataType::float16, ReduceOp::sum);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double exact = half_value(a[i]) + half_value(b[i]);
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(half_value(sum[i])));
    } else if (exact == 0.0) {
      EXPECT_EQ(half_value(sum[i]), 0.0);
    } else {
      ASSERT_EQ(sum[i], nearest_half(exact)) << half_value(a[i]) << " + " << half_value(b[i]);
    }
  }
}

float bfloat_value(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

TEST(ReduceTest, RoundsBfloat16ToNearestEven) {
  std::mt19937 generator(2);
  std::vector<std::uint16_t> a(100000);
  std::vector<std::uint16_t> b(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::uint16_t>(generator());
    b[i] = static_cast<std::uint16_t>(i % 2 == 0 ? generator() : a[i] ^ (generator() & 0x8FF));
  }
  std::vector<std::uint16_t> sum = a;
  reduce_into(sum.data(), b.data(), sum.size(), DataType::bfloat16, ReduceOp::sum);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const float exact = bfloat_value(a[i]) + bfloat_value(b[i]);
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(bfloat_value(sum[i])));
      continue;
    }
    if (std::isinf(exact)) {
      EXPECT_EQ(bfloat_value(sum[i]), exact);
      continue;
    }
    const float error = std::abs(bfloat_value(sum[i]) - exact);
    const auto magnitude = static_cast<std::uint16_t>(sum[i] & 0x7FFF);
    const float next = bfloat_value(static_cast<std::uint16_t>(magnitude + 1)) - bfloat_value(magnitude);
    if (std::isinf(next)) continue;
    ASSERT_LE(error, next / 2) << bfloat_value(a[i]) << " + " << bfloat_value(b[i]);
    if (error == next / 2) {
      EXPECT_EQ(sum[i] % 2, 0);
    }
  }
}

TEST(ReduceTest, GivesTheSameBitsOnEveryProcessor) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this processor has no AVX2";
  std::mt19937_64 generator(3);
  std::vector<std::uint64_t> a(1031);
  std::vector<std::uint64_t> b(1031);
  for (auto* values : {&a, &b}) {
    for (auto& value : *values) value = generator();
  }
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      const std::size_t count = a.size() * 8 / size_of(type) - 1;
      auto plain = a;
      auto wide = a;
      baseline_kernels(type, op).into(plain.data(), b.data(), count);
      avx2_kernels(type, op).into(wide.data(), b.data(), count);
      // A NaN's payload may depend on the order of operands, which the compiler chooses.
      const bool all_values_are_numbers = type == DataType::int32 || type == DataType::int64;
      if (all_values_are_numbers) {
        EXPECT_EQ(plain, wide) << name_of(type) << " " << name_of(op);
        continue;
      }
      std::vector<double> numbers = {0};
      for (std::size_t i = 0; type == DataType::float64 && i < count; ++i) {
        std::memcpy(numbers.data(), &plain[i], sizeof(double));
        EXPECT_TRUE(std::isnan(numbers[0]) || plain[i] == wide[i]);
      }
    }
  }
#else
  GTEST_SKIP() << "no AVX2 on this architecture";
#endif
}

TEST(ReduceTest, MaxAndMinKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values = {1, nan, 3, -1};
  const std::vector<float> others = {nan, 2, 4, -2};
  auto least = values;
  reduce_into(values.data(), others.data(), 4, DataType::float32, ReduceOp::max);
  reduce_into(least.data(), others.data(), 4, DataType::float32, ReduceOp::min);
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]) && std::isnan(least[0]) && std::isnan(least[1]));
  EXPECT_EQ(values[2], 4);
  EXPECT_EQ(values[3], -1);
  EXPECT_EQ(least[2], 3);
  EXPECT_EQ(least[3], -2);
}

TEST(ReduceTest, ReducesAmongAndToInTheOrderOfTheInputs) {
  for (const std::size_t inputs : {1U, 2U, 3U, 5U}) {
    for (const std::size_t count : {0U, 1U, 4099U}) {
      std::vector<std::vector<float>> buffers;
      std::vector<void*> pointers;
      std::vector<float> expected(count);
      for (std::size_t k = 0; k < inputs; ++k) {
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = 1.0F / static_cast<float>(3 * k + i + 1);
        for (std::size_t i = 0; i < count; ++i) expected[i] = k == 0 ? values[i] : expected[i] + values[i];
        buffers.push_back(std::move(values));
      }
      for (auto& buffer : buffers) pointers.push_back(buffer.data());
      std::vector<float> result(count, -1);
      reduce_to(result.data(), pointers, count, DataType::float32, ReduceOp::sum);
      EXPECT_EQ(result, expected);
      reduce_among(pointers, count, DataType::float32, ReduceOp::sum);
      for (const auto& buffer : buffers) EXPECT_EQ(buffer, expected) << inputs << " x " << count;
    }
  }
}

}  // namespace
}  // namespace dtrain::comm
