#pragma once

#include <cstddef>

#include "kernels/element.hpp"

namespace dtrain::kernels {

/// Windows of `kernel` x `kernel` pixels over images [images, height, width, channels], moved by `stride`,
/// with `padding` zeros around; `rows` x `columns` of them per image.
struct PatchSize {
  std::size_t images = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 0;
  std::size_t kernel = 0;
  std::size_t stride = 1;
  std::size_t padding = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;

  std::size_t patches() const { return images * rows * columns; }
  std::size_t patch() const { return kernel * kernel * channels; }  ///< Elements of one.
};

/// Writes each window as one row: `patches` [patches, kernel, kernel, channels].
template <class T>
void gather_patches(T* patches, const T* images, const PatchSize& size);

/// The adjoint: adds each row of `patches` to the pixels it was gathered from. Those of half precision are
/// added to floats.
template <class T, class S>
void scatter_patches(T* images, const S* patches, const PatchSize& size);

extern template void gather_patches<float>(float*, const float*, const PatchSize&);
extern template void gather_patches<double>(double*, const double*, const PatchSize&);
extern template void gather_patches<Bfloat16>(Bfloat16*, const Bfloat16*, const PatchSize&);
extern template void scatter_patches<float>(float*, const float*, const PatchSize&);
extern template void scatter_patches<double>(double*, const double*, const PatchSize&);
extern template void scatter_patches<float>(float*, const Bfloat16*, const PatchSize&);

}  // namespace dtrain::kernels
