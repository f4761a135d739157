#include "kernels/augment.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/philox.hpp"

namespace dtrain::kernels {
namespace {

constexpr int kPadding = 4;

/// The definition, pixel by pixel: the padded image, the window, the mirror.
template <class T>
std::vector<T> reference(const std::vector<T>& in, const ImageShape& shape,
                         const std::vector<std::int64_t>& samples, std::uint64_t seed, std::uint32_t epoch) {
  std::vector<T> out(in.size(), T{0});
  const auto height = static_cast<int>(shape.height);
  const auto width = static_cast<int>(shape.width);
  for (std::size_t plane = 0; plane < samples.size() * shape.channels; ++plane) {
    const CropAndFlip how = crop_and_flip_of(seed, epoch, samples[plane / shape.channels], kPadding);
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        const int from_y = y + how.down - kPadding;
        const int from_x = (how.flip ? width - 1 - x : x) + how.right - kPadding;
        if (from_y < 0 || from_y >= height || from_x < 0 || from_x >= width) continue;
        const std::size_t start = plane * shape.height * shape.width;
        out[start + static_cast<std::size_t>(y * width + x)] =
            in[start + static_cast<std::size_t>(from_y * width + from_x)];
      }
  }
  return out;
}

template <class T>
std::vector<T> counting(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(1 + i * 7 % 255);
  return values;
}

template <class T>
void expect_reference(const ImageShape& shape) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < 40; ++i) samples.push_back(i * i * 1'000'003);  // some beyond 2^32
  const auto in = counting<T>(samples.size() * shape.channels * shape.height * shape.width);
  std::vector<T> out(in.size(), T{99});
  crop_and_flip(out.data(), in.data(), shape, std::span<const std::int64_t>(samples), 5, 3, kPadding);
  EXPECT_EQ(out, reference(in, shape, samples, 5, 3));
}

TEST(AugmentTest, EqualsThePlainDefinition) {
  expect_reference<std::uint8_t>({3, 32, 32});
  expect_reference<float>({3, 32, 32});
  expect_reference<std::uint8_t>({1, 28, 28});
  expect_reference<std::uint8_t>({2, 5, 17});
  expect_reference<float>({1, 3, 2});  // smaller than the padding: some windows see nothing
}

TEST(AugmentTest, AnImageDependsOnItsKeyAloneNotOnItsNeighbours) {
  const ImageShape shape{3, 8, 8};
  const std::size_t image = 3 * 8 * 8;
  const std::vector<std::int64_t> samples = {11, 4, 7};
  const auto in = counting<std::uint8_t>(3 * image);
  std::vector<std::uint8_t> together(in.size());
  crop_and_flip(together.data(), in.data(), shape, std::span<const std::int64_t>(samples), 1, 1, kPadding);
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<std::uint8_t> alone(image);
    crop_and_flip(alone.data(), in.data() + i * image, shape,
                  std::span<const std::int64_t>(samples).subspan(i, 1), 1, 1, kPadding);
    EXPECT_TRUE(
        std::equal(alone.begin(), alone.end(), together.begin() + static_cast<std::ptrdiff_t>(i * image)));
  }
}

TEST(AugmentTest, PlacesAndFlipsAreEvenlyDrawnAndChangeWithEachPartOfTheKey) {
  constexpr int kDraws = 8100;
  std::map<std::pair<int, int>, int> places;
  int flips = 0;
  int same_epoch = 0;
  int same_seed = 0;
  for (std::int64_t sample = 0; sample < kDraws; ++sample) {
    const CropAndFlip how = crop_and_flip_of(1, 1, sample, kPadding);
    ++places[{how.down, how.right}];
    flips += how.flip ? 1 : 0;
    const auto equal = [&](const CropAndFlip& other) {
      return how.down == other.down && how.right == other.right && how.flip == other.flip;
    };
    same_epoch += equal(crop_and_flip_of(1, 2, sample, kPadding)) ? 1 : 0;
    same_seed += equal(crop_and_flip_of(2, 1, sample, kPadding)) ? 1 : 0;
  }
  EXPECT_EQ(places.size(), 81);
  // 100 of each place are expected with a standard deviation of 10, 4050 flips with one of 45, and 50 equal
  // draws of 162 with one of 7; six of them never happen by chance.
  for (const auto& [place, count] : places) EXPECT_NEAR(count, 100, 60) << place.first << "," << place.second;
  EXPECT_NEAR(flips, kDraws / 2, 270);
  EXPECT_NEAR(same_epoch, 50, 42);
  EXPECT_NEAR(same_seed, 50, 42);
}

TEST(AugmentTest, ACropOrAFlipAloneIsThatOfBoth) {
  bool flips = false;
  for (std::int64_t sample = 0; sample < 100; ++sample) {
    const CropAndFlip both = crop_and_flip_of(1, 1, sample, kPadding);
    const CropAndFlip crop = crop_and_flip_of(1, 1, sample, kPadding, Flips::never);
    const CropAndFlip flip = crop_and_flip_of(1, 1, sample, 0);
    EXPECT_EQ(std::tuple(crop.down, crop.right, crop.flip), std::tuple(both.down, both.right, false));
    EXPECT_EQ(std::tuple(flip.down, flip.right, flip.flip), std::tuple(0, 0, both.flip));
    flips = flips || both.flip;
  }
  EXPECT_TRUE(flips);
}

}  // namespace
}  // namespace dtrain::kernels
