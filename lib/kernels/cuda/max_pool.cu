// Maxima of 2 x 2 pixels whose channels lie side by side, with a byte for the place of each. LibTorch keeps
// eight bytes, and took 0.57 ms for vgg11's five layers and 512 images forward and back (H200, 2026-11-26),
// where memory alone predicts 0.1.
#include "kernels/cuda/max_pool.hpp"

#include <algorithm>

#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kWide = 8;         // channels of a thread
constexpr unsigned kMostLines = 65'535;  // that a grid has in its second direction

/// Where a thread is: a block has lines of windows, its threads what lies in a line.
struct Window {
  unsigned line;    ///< Of all planes.
  unsigned column;  ///< In its line.
  std::size_t channel;
};

/// Calls `work(window)` for each of the thread's windows of `columns` a line.
template <std::size_t kAtOnce, class Work>
__device__ void over_windows(unsigned lines, unsigned columns, std::size_t inner, const Work& work) {
  const auto chunks = static_cast<unsigned>(inner / kAtOnce);
  for (unsigned line = blockIdx.y; line < lines; line += gridDim.y)
    for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < columns * chunks; i += gridDim.x * kThreads)
      work(Window{line, i / chunks, i % chunks * kAtOnce});
}

template <class T, std::size_t kAtOnce>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(T* out, std::uint8_t* which, const T* input, PoolSize size, std::size_t inner) {
  const auto rows = static_cast<unsigned>(size.height / 2);
  const auto columns = static_cast<unsigned>(size.width / 2);
  const auto lines = static_cast<unsigned>(size.planes) * rows;
  over_windows<kAtOnce>(lines, columns, inner, [&](const Window& at) {
    const std::size_t upper = (std::size_t{at.line / rows} * size.height + 2 * (at.line % rows)) * size.width;
    const T* const corner = input + (upper + 2 * at.column) * inner + at.channel;
    const auto a = loaded<kAtOnce>(corner);
    const auto b = loaded<kAtOnce>(corner + inner);
    const auto x = loaded<kAtOnce>(corner + size.width * inner);
    const auto y = loaded<kAtOnce>(corner + (size.width + 1) * inner);
    Elements<T, kAtOnce> largest;
    Elements<std::uint8_t, kAtOnce> places;
    for (std::size_t e = 0; e < kAtOnce; ++e) {
      const std::uint8_t place =
          place_of_largest(to_float(a.of[e]), to_float(b.of[e]), to_float(x.of[e]), to_float(y.of[e]));
      largest.of[e] = place == 0 ? a.of[e] : place == 1 ? b.of[e] : place == 2 ? x.of[e] : y.of[e];
      places.of[e] = place;
    }
    const std::size_t to = (std::size_t{at.line} * columns + at.column) * inner + at.channel;
    store(out + to, largest);
    store(which + to, places);
  });
}

/// Also for windows that have no room at an edge: what is there of them becomes 0.
template <class T, std::size_t kAtOnce>
__global__ void __launch_bounds__(kThreads)
    max_pool_gradient_kernel(T* input_gradient, const T* gradient, const std::uint8_t* which, PoolSize size,
                             std::size_t inner) {
  const std::size_t rows = size.height / 2;
  const std::size_t columns = size.width / 2;
  const auto begun = static_cast<unsigned>((size.height + 1) / 2);  // rows of windows
  const auto lines = static_cast<unsigned>(size.planes) * begun;
  over_windows<kAtOnce>(lines, static_cast<unsigned>((size.width + 1) / 2), inner, [&](const Window& at) {
    const std::size_t plane = at.line / begun;
    const std::size_t row = at.line % begun;
    const bool whole = row < rows && at.column < columns;
    Elements<T, kAtOnce> given{};
    Elements<std::uint8_t, kAtOnce> places{};
    if (whole) {
      const std::size_t from = ((plane * rows + row) * columns + at.column) * inner + at.channel;
      given = loaded<kAtOnce>(gradient + from);
      places = loaded<kAtOnce>(which + from);
    }
    for (unsigned place = 0; place < 4; ++place) {
      const std::size_t y = 2 * row + place / 2;
      const std::size_t x = 2 * std::size_t{at.column} + place % 2;
      if (y >= size.height || x >= size.width) continue;
      Elements<T, kAtOnce> made;
      for (std::size_t e = 0; e < kAtOnce; ++e)
        made.of[e] = whole && places.of[e] == place ? given.of[e] : from_float<T>(0.0F);
      store(input_gradient + ((plane * size.height + y) * size.width + x) * inner + at.channel, made);
    }
  });
}

dim3 blocks_of(std::size_t lines, std::size_t in_a_line) {
  return {static_cast<unsigned>((in_a_line + kThreads - 1) / kThreads),
          static_cast<unsigned>(std::min<std::size_t>(lines, kMostLines))};
}

/// Calls `call` with how many channels a thread has at once, as a constant.
template <class Call>
void with_width(std::size_t inner, std::initializer_list<const void*> pointers, const Call& call) {
  if (inner % kWide == 0 && are_aligned(pointers))
    call(std::integral_constant<std::size_t, kWide>());
  else
    call(std::integral_constant<std::size_t, 1>());
}

}  // namespace

void max_pool_on_gpu(void* out, std::uint8_t* which, const void* input, Element type, const PoolSize& size,
                     std::size_t inner, cudaStream_t stream) {
  const std::size_t lines = size.planes * (size.height / 2);
  if (lines * (size.width / 2) * inner == 0) return;
  with_element_type(type, [&]<class T>(T*) {
    with_width(
        inner, {out, which, input}, [&]<std::size_t kAtOnce>(std::integral_constant<std::size_t, kAtOnce>) {
          launch(max_pool_kernel<T, kAtOnce>, blocks_of(lines, size.width / 2 * (inner / kAtOnce)), kThreads,
                 stream, static_cast<T*>(out), which, static_cast<const T*>(input), size, inner);
        });
  });
  check_launch("max_pool");
}

void max_pool_gradient_on_gpu(void* input_gradient, const void* gradient, const std::uint8_t* which,
                              Element type, const PoolSize& size, std::size_t inner, cudaStream_t stream) {
  const std::size_t lines = size.planes * ((size.height + 1) / 2);
  if (lines * size.width * inner == 0) return;
  with_element_type(type, [&]<class T>(T*) {
    with_width(inner, {input_gradient, gradient, which},
               [&]<std::size_t kAtOnce>(std::integral_constant<std::size_t, kAtOnce>) {
                 launch(max_pool_gradient_kernel<T, kAtOnce>,
                        blocks_of(lines, (size.width + 1) / 2 * (inner / kAtOnce)), kThreads, stream,
                        static_cast<T*>(input_gradient), static_cast<const T*>(gradient), which, size, inner);
               });
  });
  check_launch("max_pool_gradient");
}

}  // namespace dtrain::kernels
