#include "kernels/convolution/patches.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/lanes.hpp"
#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

/// The part [begin, end) of a window's side, starting at `first` - padding, that lies within `extent` pixels.
struct Inside {
  std::size_t begin = 0;
  std::size_t end = 0;
};
Inside inside(std::size_t first, std::size_t padding, std::size_t kernel, std::size_t extent) {
  const std::size_t begin = first < padding ? std::min(padding - first, kernel) : 0;
  const std::size_t beyond = first + kernel > extent + padding ? first + kernel - extent - padding : 0;
  return {begin, std::max(begin, kernel - std::min(beyond, kernel))};
}

/// Calls run(patch offset, image offset, count) for each run of neighbouring pixels that a window and the
/// images share, and hole(patch offset, count) for what lies outside.
template <class Run, class Hole>
DTRAIN_VECTOR_BODY inline void walk(const PatchSize& s, const Run& run, const Hole& hole) {
  std::size_t patch = 0;
  const std::size_t row_of_patch = s.kernel * s.channels;
  for (std::size_t image = 0; image < s.images; ++image) {
    for (std::size_t i = 0; i < s.rows; ++i) {
      const Inside rows = inside(i * s.stride, s.padding, s.kernel, s.height);
      for (std::size_t j = 0; j < s.columns; ++j, patch += s.patch()) {
        const Inside columns = inside(j * s.stride, s.padding, s.kernel, s.width);
        const std::size_t before = columns.begin * s.channels;
        const std::size_t count = (columns.end - columns.begin) * s.channels;
        for (std::size_t r = 0; r < s.kernel; ++r) {
          const std::size_t at = patch + r * row_of_patch;
          if (r < rows.begin || r >= rows.end || count == 0) {
            hole(at, row_of_patch);
            continue;
          }
          const std::size_t pixel = (image * s.height + i * s.stride + r - s.padding) * s.width +
                                    j * s.stride + columns.begin - s.padding;
          if (before > 0) hole(at, before);
          run(at + before, pixel * s.channels, count);
          if (before + count < row_of_patch) hole(at + before + count, row_of_patch - before - count);
        }
      }
    }
  }
}

}  // namespace

template <class T>
void gather_patches(T* patches, const T* images, const PatchSize& size) {
  with_avx2([=, &size]() DTRAIN_VECTOR_BODY {
    walk(
        size,
        [=](std::size_t to, std::size_t from, std::size_t count) DTRAIN_VECTOR_BODY {
          std::memcpy(static_cast<void*>(patches + to), images + from, count * sizeof(T));
        },
        [=](std::size_t to, std::size_t count)
            DTRAIN_VECTOR_BODY { std::memset(static_cast<void*>(patches + to), 0, count * sizeof(T)); });
  });
}

template <class T, class S>
void scatter_patches(T* images, const S* patches, const PatchSize& size) {
  with_avx2([=, &size]() DTRAIN_VECTOR_BODY {
    walk(
        size,
        [=](std::size_t from, std::size_t to, std::size_t count) DTRAIN_VECTOR_BODY {
          constexpr std::size_t kWidth = Lanes<T>::kWidth;
          typename Lanes<T>::Vector sum, added;
          std::size_t k = 0;
          for (; k + kWidth <= count; k += kWidth) {
            load(sum, images + to + k);
            load(added, patches + from + k);
            store(images + to + k, sum + added);
          }
          for (T one; k < count; ++k) {
            load(one, patches + from + k);
            images[to + k] += one;
          }
        },
        [](std::size_t, std::size_t) DTRAIN_VECTOR_BODY {});
  });
}

template void gather_patches<float>(float*, const float*, const PatchSize&);
template void gather_patches<double>(double*, const double*, const PatchSize&);
template void gather_patches<Bfloat16>(Bfloat16*, const Bfloat16*, const PatchSize&);
template void scatter_patches<float>(float*, const float*, const PatchSize&);
template void scatter_patches<double>(double*, const double*, const PatchSize&);
template void scatter_patches<float>(float*, const Bfloat16*, const PatchSize&);

}  // namespace dtrain::kernels
