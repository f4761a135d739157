#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dtrain::kernels {

/// Sentences of different lengths as a matrix of ids; id 0 is padding and counts for nothing.
struct Bags {
  const std::int32_t* ids = nullptr;  ///< [bags, row_stride], of which the first `width` columns are read.
  std::size_t bags = 0;
  std::size_t width = 0;
  std::size_t row_stride = 0;
};

/// scales[b] = 1 / number of real ids of bag b; 0 for an empty one. Returns false when an id is outside
/// [0, rows).
template <class T>
bool bag_scales(T* scales, const Bags& bags, std::int64_t rows);

/// out[b] = scales[b] x the sum of table[id] over the real ids of bag b, in their order.
/// Shapes: `out` [bags, columns], `table` [rows, columns].
template <class T>
void bag_means(T* out, const T* table, const T* scales, const Bags& bags, std::size_t columns);

/// table_gradient[id] += scales[b] x gradient[b] for each real id: the backward of bag_means, bag after bag.
template <class T>
void bag_means_backward(T* table_gradient, const T* gradient, const T* scales, const Bags& bags,
                        std::size_t columns);

/// out = the sum of the given rows [columns], in their order; zero for none.
template <class T>
void sum_rows(T* out, std::span<const T* const> rows, std::size_t columns);

extern template bool bag_scales<float>(float*, const Bags&, std::int64_t);
extern template bool bag_scales<double>(double*, const Bags&, std::int64_t);
extern template void bag_means<float>(float*, const float*, const float*, const Bags&, std::size_t);
extern template void bag_means<double>(double*, const double*, const double*, const Bags&, std::size_t);
extern template void bag_means_backward<float>(float*, const float*, const float*, const Bags&, std::size_t);
extern template void bag_means_backward<double>(double*, const double*, const double*, const Bags&,
                                                std::size_t);
extern template void sum_rows<float>(float*, std::span<const float* const>, std::size_t);
extern template void sum_rows<double>(double*, std::span<const double* const>, std::size_t);

}  // namespace dtrain::kernels
