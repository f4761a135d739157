#pragma once

#include <cstddef>
#include <cstdint>

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

/// The same for images that lie with the image innermost: planes [height, width, images] (CHWN), and so do
/// `out` and `which`.
template <class T>
void max_pool_2x2_chwn(T* out, std::uint8_t* which, const T* input, const PoolSize& size, std::size_t images);
template <class T>
void max_pool_2x2_chwn_backward(T* input_gradient, const T* gradient, const std::uint8_t* which,
                                const PoolSize& size, std::size_t images);

extern template void max_pool_2x2<float>(float*, std::uint8_t*, const float*, const PoolSize&);
extern template void max_pool_2x2<double>(double*, std::uint8_t*, const double*, const PoolSize&);
extern template void max_pool_2x2_backward<float>(float*, const float*, const std::uint8_t*, const PoolSize&);
extern template void max_pool_2x2_backward<double>(double*, const double*, const std::uint8_t*,
                                                   const PoolSize&);
extern template void max_pool_2x2_chwn<float>(float*, std::uint8_t*, const float*, const PoolSize&,
                                              std::size_t);
extern template void max_pool_2x2_chwn<double>(double*, std::uint8_t*, const double*, const PoolSize&,
                                               std::size_t);
extern template void max_pool_2x2_chwn_backward<float>(float*, const float*, const std::uint8_t*,
                                                       const PoolSize&, std::size_t);
extern template void max_pool_2x2_chwn_backward<double>(double*, const double*, const std::uint8_t*,
                                                        const PoolSize&, std::size_t);

}  // namespace dtrain::kernels
