#include "kernels/bag.hpp"

#include <algorithm>
#include <array>

#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kRowsAtOnce = 4;    // added in one pass over the sum
constexpr std::size_t kLinesFetched = 4;  // the processor's prefetcher goes on by itself from there
constexpr std::size_t kIdsAhead = 4;

template <class T>
inline DTRAIN_VECTOR_BODY void fetch_row(const T* row) {
  for (std::size_t line = 0; line < kLinesFetched; ++line) {
    __builtin_prefetch(reinterpret_cast<const char*>(row) + 64 * line);
  }
}

/// sum += the rows of one bag.
template <class T>
inline DTRAIN_VECTOR_BODY void add_rows(T* sum, const T* table, const std::int32_t* ids, std::size_t width,
                                        std::size_t columns) {
  std::array<const T*, kRowsAtOnce> rows{};
  std::size_t held = 0;
  for (std::size_t t = 0; t < width; ++t) {
    if (t + kIdsAhead < width) fetch_row(table + static_cast<std::size_t>(ids[t + kIdsAhead]) * columns);
    if (ids[t] == 0) continue;
    rows[held++] = table + static_cast<std::size_t>(ids[t]) * columns;
    if (held < kRowsAtOnce) continue;
    const T* a = rows[0];
    const T* b = rows[1];
    const T* c = rows[2];
    const T* d = rows[3];
#pragma GCC ivdep
    for (std::size_t i = 0; i < columns; ++i) sum[i] = (((sum[i] + a[i]) + b[i]) + c[i]) + d[i];
    held = 0;
  }
  for (std::size_t r = 0; r < held; ++r) {
    const T* row = rows[r];
#pragma GCC ivdep
    for (std::size_t i = 0; i < columns; ++i) sum[i] += row[i];
  }
}

}  // namespace

template <class T>
bool bag_scales(T* scales, const Bags& bags, std::int64_t rows) {
  bool inside = true;
  for (std::size_t b = 0; b < bags.bags; ++b) {
    const std::int32_t* ids = bags.ids + b * bags.row_stride;
    std::int64_t real = 0;
    std::int32_t least = 0;
    std::int32_t most = 0;
    for (std::size_t t = 0; t < bags.width; ++t) {
      real += ids[t] != 0 ? 1 : 0;
      least = std::min(least, ids[t]);
      most = std::max(most, ids[t]);
    }
    inside = inside && least >= 0 && most < rows;
    scales[b] = real == 0 ? T{0} : T{1} / static_cast<T>(real);
  }
  return inside;
}

template <class T>
void bag_means(T* out, const T* table, const T* scales, const Bags& bags, std::size_t columns) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t b = 0; b < bags.bags; ++b) {
      T* sum = out + b * columns;
      std::fill(sum, sum + columns, T{0});
      add_rows(sum, table, bags.ids + b * bags.row_stride, bags.width, columns);
      const T scale = scales[b];
#pragma GCC ivdep
      for (std::size_t i = 0; i < columns; ++i) sum[i] *= scale;
    }
  });
}

template <class T>
void bag_means_backward(T* table_gradient, const T* gradient, const T* scales, const Bags& bags,
                        std::size_t columns) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t b = 0; b < bags.bags; ++b) {
      const std::int32_t* ids = bags.ids + b * bags.row_stride;
      const T* from = gradient + b * columns;
      const T scale = scales[b];
      for (std::size_t t = 0; t < bags.width; ++t) {
        if (ids[t] == 0) continue;
        T* to = table_gradient + static_cast<std::size_t>(ids[t]) * columns;
#pragma GCC ivdep
        for (std::size_t i = 0; i < columns; ++i) to[i] += scale * from[i];
      }
    }
  });
}

template <class T>
void sum_rows(T* out, std::span<const T* const> rows, std::size_t columns) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    std::fill(out, out + columns, T{0});
    std::size_t r = 0;
    for (; r + kRowsAtOnce <= rows.size(); r += kRowsAtOnce) {
      const T* a = rows[r];
      const T* b = rows[r + 1];
      const T* c = rows[r + 2];
      const T* d = rows[r + 3];
#pragma GCC ivdep
      for (std::size_t i = 0; i < columns; ++i) out[i] = (((out[i] + a[i]) + b[i]) + c[i]) + d[i];
    }
    for (; r < rows.size(); ++r) {
      const T* row = rows[r];
#pragma GCC ivdep
      for (std::size_t i = 0; i < columns; ++i) out[i] += row[i];
    }
  });
}

template bool bag_scales<float>(float*, const Bags&, std::int64_t);
template bool bag_scales<double>(double*, const Bags&, std::int64_t);
template void bag_means<float>(float*, const float*, const float*, const Bags&, std::size_t);
template void bag_means<double>(double*, const double*, const double*, const Bags&, std::size_t);
template void bag_means_backward<float>(float*, const float*, const float*, const Bags&, std::size_t);
template void bag_means_backward<double>(double*, const double*, const double*, const Bags&, std::size_t);
template void sum_rows<float>(float*, std::span<const float* const>, std::size_t);
template void sum_rows<double>(double*, std::span<const double* const>, std::size_t);

}  // namespace dtrain::kernels
