#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::kernels {

/// What a gradient buffer is asked before an update.
struct SumOfSquares {
  double sum = 0.0;             ///< NaN or infinite if any element is.
  std::int64_t non_finite = 0;  ///< Elements that are NaN or infinite.
};

/// In double, over blocks of 1024 elements counted from `values`, in an order that depends on nothing but n.
template <class T>
SumOfSquares sum_of_squares_and_nonfinite(const T* values, std::size_t n);

extern template SumOfSquares sum_of_squares_and_nonfinite<float>(const float*, std::size_t);
extern template SumOfSquares sum_of_squares_and_nonfinite<double>(const double*, std::size_t);

/// out[i] = To(in[i] * scale), the product in the wider of both types; float and double both ways.
template <class To, class From>
void cast_scale(To* out, const From* in, std::size_t n, double scale);

/// out[i] += To(in[i] * scale): a later micro-batch's gradient.
template <class To, class From>
void add_cast_scale(To* out, const From* in, std::size_t n, double scale);

/// A 64-bit hash to compare replicas' parameters by; not cryptographic. Equal on machines of equal byte
/// order.
std::uint64_t hash_bytes(const void* bytes, std::size_t n, std::uint64_t seed = 0);

extern template void cast_scale<float, float>(float*, const float*, std::size_t, double);
extern template void cast_scale<float, double>(float*, const double*, std::size_t, double);
extern template void cast_scale<double, float>(double*, const float*, std::size_t, double);
extern template void cast_scale<double, double>(double*, const double*, std::size_t, double);
extern template void add_cast_scale<float, float>(float*, const float*, std::size_t, double);
extern template void add_cast_scale<float, double>(float*, const double*, std::size_t, double);
extern template void add_cast_scale<double, float>(double*, const float*, std::size_t, double);
extern template void add_cast_scale<double, double>(double*, const double*, std::size_t, double);

}  // namespace dtrain::kernels
