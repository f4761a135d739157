#include "kernels/image_batch.hpp"

namespace dtrain::kernels {

void set_normalisation(ImageBatch& batch, std::span<const float> mean, std::span<const float> deviation) {
  batch.factor.clear();
  batch.shift.clear();
  for (std::size_t channel = 0; channel < batch.shape.channels; ++channel) {
    const double sigma = deviation.empty() ? 1.0 : double{deviation[channel]};
    batch.factor.push_back(static_cast<float>(1.0 / (255.0 * sigma)));
    batch.shift.push_back(static_cast<float>(mean.empty() ? 0.0 : -double{mean[channel]} / sigma));
  }
}

template <class T>
void prepare_images(T* out, const std::uint8_t* bytes, std::size_t images, const ImageBatch& batch) {
  const int height = static_cast<int>(batch.shape.height);
  const int width = static_cast<int>(batch.shape.width);
  const auto plane = static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
  for (std::size_t image = 0; image < images; ++image, bytes += batch.shape.channels * plane) {
    const CropAndFlip how = batch.how_of(image);
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        const int source = source_of(y, x, height, width, how, batch.padding);
        for (std::size_t channel = 0; channel < batch.shape.channels; ++channel) {
          const std::uint8_t byte =
              source < 0 ? std::uint8_t{0} : bytes[channel * plane + static_cast<std::size_t>(source)];
          *out++ = from_float<T>(normalized(byte, batch.factor[channel], batch.shift[channel]));
        }
      }
    }
  }
}

template void prepare_images<float>(float*, const std::uint8_t*, std::size_t, const ImageBatch&);
template void prepare_images<Bfloat16>(Bfloat16*, const std::uint8_t*, std::size_t, const ImageBatch&);
template void prepare_images<Float16>(Float16*, const std::uint8_t*, std::size_t, const ImageBatch&);

}  // namespace dtrain::kernels
