#include "kernels/reduce.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kBlock = 1024;
constexpr std::size_t kPartialSums =
    16;  // partial sums that a block is spread over, whatever the instruction set

template <class T>
bool is_non_finite(T value) {
  if constexpr (sizeof(T) == 4) {
    return (std::bit_cast<std::uint32_t>(value) & 0x7F800000U) == 0x7F800000U;
  } else {
    return (std::bit_cast<std::uint64_t>(value) & 0x7FF0000000000000U) == 0x7FF0000000000000U;
  }
}

template <class T>
inline DTRAIN_VECTOR_BODY void add_squares(std::array<double, kPartialSums>& lanes, const T* values) {
  for (std::size_t lane = 0; lane < kPartialSums; ++lane) {
    const auto value = static_cast<double>(values[lane]);
    lanes[lane] += value * value;
  }
}

/// The sum of a block, or of what there is of one: lanes, then a tree over the lanes.
template <class T>
double block_sum(const T* values, std::size_t n) {
  std::array<double, kPartialSums> lanes{};
  const std::size_t whole = n / kPartialSums * kPartialSums;
  with_avx2([&]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < whole; i += kPartialSums) add_squares(lanes, values + i);
  });
  if (whole < n) {
    std::array<T, kPartialSums> rest{};
    std::copy(values + whole, values + n, rest.begin());
    add_squares(lanes, rest.data());
  }
  for (std::size_t width = kPartialSums / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

template <class T>
std::int64_t count_non_finite(const T* values, std::size_t n) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < n; ++i) count += is_non_finite(values[i]) ? 1 : 0;
  return count;
}

}  // namespace

template <class T>
SumOfSquares sum_of_squares_and_nonfinite(const T* values, std::size_t n) {
  SumOfSquares result;
  for (std::size_t i = 0; i < n; i += kBlock) result.sum += block_sum(values + i, std::min(kBlock, n - i));
  // A finite sum has no other terms. Squares of huge doubles may overflow alone; the count then says 0.
  if (is_non_finite(result.sum)) result.non_finite = count_non_finite(values, n);
  return result;
}

template <class To, class From>
void cast_scale(To* out, const From* in, std::size_t n, double scale) {
  using Wide = std::common_type_t<To, From>;
  const auto factor = static_cast<Wide>(scale);
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<To>(static_cast<Wide>(in[i]) * factor);
  });
}

template <class To, class From>
void add_cast_scale(To* out, const From* in, std::size_t n, double scale) {
  using Wide = std::common_type_t<To, From>;
  const auto factor = static_cast<Wide>(scale);
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < n; ++i) out[i] += static_cast<To>(static_cast<Wide>(in[i]) * factor);
  });
}

template SumOfSquares sum_of_squares_and_nonfinite<float>(const float*, std::size_t);
template SumOfSquares sum_of_squares_and_nonfinite<double>(const double*, std::size_t);
template void cast_scale<float, float>(float*, const float*, std::size_t, double);
template void cast_scale<float, double>(float*, const double*, std::size_t, double);
template void cast_scale<double, float>(double*, const float*, std::size_t, double);
template void cast_scale<double, double>(double*, const double*, std::size_t, double);
template void add_cast_scale<float, float>(float*, const float*, std::size_t, double);
template void add_cast_scale<float, double>(float*, const double*, std::size_t, double);
template void add_cast_scale<double, float>(double*, const float*, std::size_t, double);
template void add_cast_scale<double, double>(double*, const double*, std::size_t, double);

}  // namespace dtrain::kernels
