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

/// The sum of a block or what there is of one, n a multiple of kPartialSums: lanes, then a tree over the
/// lanes.
template <class T>
double block_sum(const T* values, std::size_t n) {
  std::array<double, kPartialSums> lanes{};
  with_avx2([&]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < n; i += kPartialSums) {
      for (std::size_t lane = 0; lane < kPartialSums; ++lane) {
        const auto value = static_cast<double>(values[i + lane]);
        lanes[lane] += value * value;
      }
    }
  });
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
  std::size_t done = 0;
  for (; done + kBlock <= n; done += kBlock) result.sum += block_sum(values + done, kBlock);
  if (done < n) {
    std::array<T, kBlock> rest{};
    std::copy(values + done, values + n, rest.begin());
    result.sum += block_sum(rest.data(), (n - done + kPartialSums - 1) / kPartialSums * kPartialSums);
  }
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
