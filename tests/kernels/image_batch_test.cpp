#include "kernels/image_batch.hpp"

#include <gtest/gtest.h>

#include "kernels/normalize.hpp"

namespace dtrain::kernels {
namespace {

constexpr int kPadding = 4;

std::vector<std::uint8_t> bytes_of(std::size_t n) {
  std::vector<std::uint8_t> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::uint8_t>(i * 37 % 256);
  return bytes;
}

/// The two kernels that training on a CPU calls one after the other, then channels last.
std::vector<float> in_two_passes(const std::vector<std::uint8_t>& bytes,
                                 const std::vector<std::int64_t>& samples, const ImageShape& shape,
                                 const std::vector<float>& mean, const std::vector<float>& deviation) {
  std::vector<std::uint8_t> cropped(bytes.size());
  crop_and_flip(cropped.data(), bytes.data(), shape, samples, 3, 2, kPadding);
  const std::size_t plane = shape.height * shape.width;
  std::vector<float> planes(bytes.size());
  normalize_u8(planes.data(), cropped.data(), samples.size(), shape.channels, plane, mean.data(),
               deviation.data());
  std::vector<float> last(bytes.size());
  for (std::size_t image = 0; image < samples.size(); ++image)
    for (std::size_t channel = 0; channel < shape.channels; ++channel)
      for (std::size_t i = 0; i < plane; ++i) {
        last[(image * plane + i) * shape.channels + channel] =
            planes[(image * shape.channels + channel) * plane + i];
      }
  return last;
}

TEST(ImageBatchTest, IsCropFlipNormalisationAndOrderInOnePass) {
  for (const ImageShape shape : {ImageShape{3, 32, 32}, ImageShape{1, 7, 11}, ImageShape{4, 9, 5}}) {
    std::vector<std::int64_t> samples;
    ImageBatch batch{.shape = shape, .how = {}, .padding = kPadding, .factor = {}, .shift = {}};
    for (std::int64_t i = 0; i < 20; ++i) {
      samples.push_back(i * 977);
      batch.how.push_back(crop_and_flip_of(3, 2, samples.back(), kPadding));
    }
    const std::vector<float> mean = {0.4914F, 0.4822F, 0.4465F, 0.5F};
    const std::vector<float> deviation = {0.247F, 0.2435F, 0.2616F, 0.25F};
    set_normalisation(batch, std::span(mean).first(shape.channels),
                      std::span(deviation).first(shape.channels));
    const auto bytes = bytes_of(samples.size() * shape.channels * shape.height * shape.width);
    const auto expected = in_two_passes(bytes, samples, shape, mean, deviation);
    std::vector<float> out(bytes.size());
    prepare_images(out.data(), bytes.data(), samples.size(), batch);
    EXPECT_EQ(out, expected);

    std::vector<Bfloat16> brain(bytes.size());
    std::vector<Float16> half(bytes.size());
    prepare_images(brain.data(), bytes.data(), samples.size(), batch);
    prepare_images(half.data(), bytes.data(), samples.size(), batch);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(brain[i].bits, from_float<Bfloat16>(expected[i]).bits);
      ASSERT_EQ(half[i].bits, from_float<Float16>(expected[i]).bits);
    }
  }
}

TEST(ImageBatchTest, WithoutCropsAndMeansItIsTheBytesOver255) {
  ImageBatch batch{.shape = {1, 3, 5}, .how = {}, .padding = 0, .factor = {}, .shift = {}};
  set_normalisation(batch, {}, {});
  const auto bytes = bytes_of(30);
  std::vector<float> out(30);
  prepare_images(out.data(), bytes.data(), 2, batch);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_FLOAT_EQ(out[i], static_cast<float>(bytes[i]) / 255.0F);
}

}  // namespace
}  // namespace dtrain::kernels
