#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/element.hpp"

namespace dtrain::kernels {

/// Extents of images to pool, all planes [height, width] one after another.
struct PoolSize {
  std::size_t planes = 0;
  std::size_t height = 0;
  std::size_t width = 0;
};

/// Maximum over windows of 2 x 2, moved by 2; an odd last row or column is left out. `out` and `which`
/// [planes, height / 2, width / 2]; `which` receives the place of the maximum in its window, 0 to 3 row by
/// row, the first of equals. A NaN wins, as in PyTorch.
template <class T>
void max_pool_2x2(T* out, std::uint8_t* which, const T* input, const PoolSize& size);

/// The input's gradient [planes, height, width] from the output's and `which`. Writes every element.
template <class T>
void max_pool_2x2_backward(T* input_gradient, const T* gradient, const std::uint8_t* which,
                           const PoolSize& size);

/// The same where `inner` values of a pixel lie side by side, planes [height, width, inner], and so do `out`
/// and `which`: a plane for each image and the channels innermost, or a plane for each channel and the images
/// innermost (CHWN). S: float, double or Bfloat16.
template <class S>
void max_pool_2x2_inner(S* out, std::uint8_t* which, const S* input, const PoolSize& size, std::size_t inner);
template <class S>
void max_pool_2x2_inner_backward(S* input_gradient, const S* gradient, const std::uint8_t* which,
                                 const PoolSize& size, std::size_t inner);

extern template void max_pool_2x2<float>(float*, std::uint8_t*, const float*, const PoolSize&);
extern template void max_pool_2x2<double>(double*, std::uint8_t*, const double*, const PoolSize&);
extern template void max_pool_2x2_backward<float>(float*, const float*, const std::uint8_t*, const PoolSize&);
extern template void max_pool_2x2_backward<double>(double*, const double*, const std::uint8_t*,
                                                   const PoolSize&);

#define DTRAIN_DECLARE_INNER_POOL(S)                                                                      \
  extern template void max_pool_2x2_inner<S>(S*, std::uint8_t*, const S*, const PoolSize&, std::size_t);  \
  extern template void max_pool_2x2_inner_backward<S>(S*, const S*, const std::uint8_t*, const PoolSize&, \
                                                      std::size_t);
DTRAIN_DECLARE_INNER_POOL(float)
DTRAIN_DECLARE_INNER_POOL(double)
DTRAIN_DECLARE_INNER_POOL(Bfloat16)
#undef DTRAIN_DECLARE_INNER_POOL

}  // namespace dtrain::kernels
