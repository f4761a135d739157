#include <limits>

#include "kernels/on_device.hpp"

namespace dtrain::kernels {
namespace {

/// Numbers of all sizes; an odd count, so that no block is full.
std::vector<float> large_numbers(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 7919 % 20011) - 10005) * 0.37F;
  }
  return values;
}

TEST_F(DeviceKernelsTest, PreparesTheSamePixels) {
  const ImageShape shape{3, 32, 32};
  const std::size_t images = 1300;  // more than one launch takes
  ImageBatch batch{.shape = shape, .how = {}, .padding = 4, .factor = {}, .shift = {}};
  for (std::size_t i = 0; i < images; ++i) {
    batch.how.push_back(crop_and_flip_of(5, 2, static_cast<std::int64_t>(i * 31), 4));
  }
  set_normalisation(batch, std::vector<float>{0.49F, 0.48F, 0.45F}, std::vector<float>{0.25F, 0.24F, 0.26F});
  std::vector<std::uint8_t> bytes(images * 3 * 32 * 32);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37 % 256);
  const OnDevice<std::uint8_t> stored(bytes);

  std::vector<float> expected(bytes.size());
  prepare_images(expected.data(), bytes.data(), images, batch);
  const OnDevice<float> out(bytes.size());
  kernels_->prepare_images(out.data(), Element::float32, stored.data(), images, batch, nullptr);
  EXPECT_EQ(out.values(), expected);

  std::vector<Bfloat16> rounded(bytes.size());
  prepare_images(rounded.data(), bytes.data(), images, batch);
  const OnDevice<Bfloat16> half(bytes.size());
  kernels_->prepare_images(half.data(), Element::bfloat16, stored.data(), images, batch, nullptr);
  EXPECT_EQ(bits_of_all(half.values()), bits_of_all(rounded));
}

TEST_F(DeviceKernelsTest, DropsTheSameElements) {
  const RandomKey key{.seed = 11, .purpose = Purpose::dropout, .major = 3, .minor = 1, .stream = 42};
  for (const LogicalSlice slice :
       {LogicalSlice{.columns = 100003},
        LogicalSlice{.first_index = 13, .rows = 57, .columns = 101, .row_stride = 1003}}) {
    const auto input = large_numbers(slice.rows * slice.columns);
    std::vector<float> expected(input.size());
    dropout(expected.data(), input.data(), slice, key, 0.3);
    const OnDevice<float> in(input);
    const OnDevice<float> out(input.size());
    kernels_->dropout(out.data(), in.data(), Element::float32, slice, key, nullptr, 0.3, nullptr);
    EXPECT_EQ(out.values(), expected);
  }
}

TEST_F(DeviceKernelsTest, ScalesAndRoundsOnce) {
  const auto input = large_numbers(100003);
  const OnDevice<float> in(input);
  const OnDevice<Bfloat16> half(input.size());
  kernels_->cast_scale(half.data(), Element::bfloat16, in.data(), Element::float32, input.size(), 0.125F,
                       nullptr);
  std::vector<Bfloat16> expected;
  for (const float value : input) expected.push_back(from_float<Bfloat16>(value * 0.125F));
  EXPECT_EQ(bits_of_all(half.values()), bits_of_all(expected));
  const OnDevice<float> back(input.size());
  kernels_->cast_scale(back.data(), Element::float32, half.data(), Element::bfloat16, input.size(), 8.0F,
                       nullptr);
  std::vector<float> widened;
  for (const auto value : expected) widened.push_back(to_float(value) * 8.0F);
  EXPECT_EQ(back.values(), widened);
}

TEST_F(DeviceKernelsTest, SumsSquaresAndCountsWhatIsNotFinite) {
  const OnDevice<SumOfSquares> result(1);
  const OnDevice<SumOfSquares> scratch(DeviceKernels::kScratchBytes / sizeof(SumOfSquares));
  struct Case {
    std::size_t n;
    std::size_t offset = 0;  ///< Elements behind a whole vector.
  };
  for (const auto [n, offset] : {Case{1}, {3}, {257}, {5000003}, {2, 3}, {5, 1}, {4, 2}, {1003, 3}}) {
    auto input = large_numbers(n);
    const auto expected = sum_of_squares_and_nonfinite(input.data(), n);
    const OnDevice<float> in(input, offset);
    kernels_->sum_of_squares_and_nonfinite(result.data(), scratch.data(), in.data(), n, nullptr);
    const auto found = result.values()[0];
    EXPECT_NEAR(found.sum, expected.sum, 1e-12 * expected.sum);  // the same terms in another order
    EXPECT_EQ(found.non_finite, 0);
    kernels_->sum_of_squares_and_nonfinite(result.data(), scratch.data(), in.data(), n, nullptr);
    EXPECT_EQ(result.values()[0].sum, found.sum) << "another order in another call";

    input[n / 2] = std::numeric_limits<float>::quiet_NaN();
    input[n - 1] = std::numeric_limits<float>::infinity();
    const OnDevice<float> spoilt(input, offset);
    kernels_->sum_of_squares_and_nonfinite(result.data(), scratch.data(), spoilt.data(), n, nullptr);
    EXPECT_EQ(result.values()[0].non_finite, n / 2 == n - 1 ? 1 : 2);
  }
}

}  // namespace
}  // namespace dtrain::kernels
