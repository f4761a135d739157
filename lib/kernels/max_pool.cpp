#include "kernels/max_pool.hpp"

#include <algorithm>

#include "kernels/simd.hpp"

namespace dtrain::kernels {

template <class T>
void max_pool_2x2(T* out, std::uint8_t* which, const T* input, const PoolSize& size) {
  const std::size_t rows = size.height / 2;
  const std::size_t columns = size.width / 2;
  for (std::size_t row = 0; row < size.planes * rows; ++row) {
    const T* upper = input + (row / rows * size.height + row % rows * 2) * size.width;
    const T* lower = upper + size.width;
    T* to = out + row * columns;
    std::uint8_t* place = which + row * columns;
    with_avx2([=]() DTRAIN_VECTOR_BODY {
#pragma GCC ivdep
      for (std::size_t c = 0; c < columns; ++c) {
        const T a = upper[2 * c];
        const T b = upper[2 * c + 1];
        const T x = lower[2 * c];
        const T y = lower[2 * c + 1];
        // !(value <= best) also holds for a NaN value; a NaN that is the best so far stays.
        const bool right = a == a && !(b <= a);
        const T above = right ? b : a;
        const bool below_right = x == x && !(y <= x);
        const T below = below_right ? y : x;
        const bool down = above == above && !(below <= above);
        to[c] = down ? below : above;
        const int above_place = right ? 1 : 0;
        const int below_place = below_right ? 3 : 2;
        place[c] = static_cast<std::uint8_t>(down ? below_place : above_place);
      }
    });
  }
}

template <class T>
void max_pool_2x2_backward(T* input_gradient, const T* gradient, const std::uint8_t* which,
                           const PoolSize& size) {
  const std::size_t rows = size.height / 2;
  const std::size_t columns = size.width / 2;
  if (size.height % 2 == 1 || size.width % 2 == 1) {
    std::fill(input_gradient, input_gradient + size.planes * size.height * size.width, T{0});
  }
  for (std::size_t row = 0; row < size.planes * rows; ++row) {
    T* upper = input_gradient + (row / rows * size.height + row % rows * 2) * size.width;
    T* lower = upper + size.width;
    const T* from = gradient + row * columns;
    const std::uint8_t* place = which + row * columns;
    with_avx2([=]() DTRAIN_VECTOR_BODY {
#pragma GCC ivdep
      for (std::size_t c = 0; c < columns; ++c) {
        upper[2 * c] = place[c] == 0 ? from[c] : T{0};
        upper[2 * c + 1] = place[c] == 1 ? from[c] : T{0};
        lower[2 * c] = place[c] == 2 ? from[c] : T{0};
        lower[2 * c + 1] = place[c] == 3 ? from[c] : T{0};
      }
    });
  }
}

template void max_pool_2x2<float>(float*, std::uint8_t*, const float*, const PoolSize&);
template void max_pool_2x2<double>(double*, std::uint8_t*, const double*, const PoolSize&);
template void max_pool_2x2_backward<float>(float*, const float*, const std::uint8_t*, const PoolSize&);
template void max_pool_2x2_backward<double>(double*, const double*, const std::uint8_t*, const PoolSize&);

}  // namespace dtrain::kernels
