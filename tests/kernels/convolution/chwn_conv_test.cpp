#include "kernels/convolution/chwn_conv.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/convolution/transpose.hpp"
#include "kernels/products.hpp"

namespace dtrain::kernels {
namespace {

ChwnConv conv_of(std::size_t images, std::size_t large, std::size_t small, std::size_t kernel,
                 std::size_t stride, std::size_t padding, std::size_t height, std::size_t width) {
  const auto after = [&](std::size_t extent) { return (extent + 2 * padding - kernel) / stride + 1; };
  return {images, large, height, width, small, after(height), after(width), kernel, stride, padding};
}

template <class T>
std::vector<T> drawn(std::size_t count, std::mt19937& chance) {
  std::normal_distribution<double> normal;
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(normal(chance));
  return values;
}

/// Both sides, the weights and what the definition makes of them, in double.
template <class T>
struct Case {
  ChwnConv size;
  std::vector<T> large, small, weight, small_bias, large_bias;
  std::vector<double> to_small, to_large, gradient;
  double magnitude = 0;  // the largest sum of magnitudes

  Case(const ChwnConv& of, std::mt19937& chance) : size(of) {
    const std::size_t large_plane = of.height * of.width * of.images;
    const std::size_t small_plane = of.rows * of.columns * of.images;
    const std::size_t window = of.kernel * of.kernel;
    large = drawn<T>(of.large_channels * large_plane, chance);
    small = drawn<T>(of.small_channels * small_plane, chance);
    weight = drawn<T>(of.small_channels * of.large_channels * window, chance);
    small_bias = drawn<T>(of.small_channels, chance);
    large_bias = drawn<T>(of.large_channels, chance);
    for (std::size_t i = 0; i < small.size(); ++i) to_small.push_back(small_bias[i / small_plane]);
    for (std::size_t i = 0; i < large.size(); ++i) to_large.push_back(large_bias[i / large_plane]);
    gradient.resize(weight.size());
    std::vector<double> small_magnitudes(small.size());
    std::vector<double> large_magnitudes(large.size());
    std::vector<double> magnitudes(weight.size());
    const auto add = [](double& sum, double& magnitude_of, T a, T b) {
      const double product = static_cast<double>(a) * static_cast<double>(b);
      sum += product;
      magnitude_of += std::abs(product);
    };
    over_taps([&](std::size_t s, std::size_t l, std::size_t w) {
      add(to_small[s], small_magnitudes[s], weight[w], large[l]);
      add(to_large[l], large_magnitudes[l], weight[w], small[s]);
      add(gradient[w], magnitudes[w], small[s], large[l]);
    });
    for (const auto* sums : {&small_magnitudes, &large_magnitudes, &magnitudes})
      magnitude = std::max(magnitude, *std::ranges::max_element(*sums));
  }

  template <class Work>
  void over_taps(const Work& work) const {
    const auto& z = size;
    for (std::size_t o = 0; o < z.small_channels; ++o)
      for (std::size_t c = 0; c < z.large_channels; ++c)
        for (std::size_t y = 0; y < z.rows; ++y)
          for (std::size_t x = 0; x < z.columns; ++x)
            for (std::size_t a = 0; a < z.kernel; ++a)
              for (std::size_t b = 0; b < z.kernel; ++b) {
                const std::size_t row =
                    y * z.stride + a - z.padding;  // wraps where it is above or left of it
                const std::size_t column = x * z.stride + b - z.padding;
                if (row >= z.height || column >= z.width) continue;
                for (std::size_t n = 0; n < z.images; ++n)
                  work(((o * z.rows + y) * z.columns + x) * z.images + n,
                       ((c * z.height + row) * z.width + column) * z.images + n,
                       ((o * z.large_channels + c) * z.kernel + a) * z.kernel + b);
              }
  }

  WeightStrides strides() const {
    const std::size_t k = size.kernel;
    return {size.large_channels * k * k, k * k, k, 1};
  }
};

template <class T>
void expect_close(const std::vector<T>& found, const std::vector<double>& expected, double tolerance,
                  const ChwnConv& size, const char* what) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance)
        << what << ' ' << i << ": " << size.images << " images, " << size.large_channels << " and "
        << size.small_channels << " channels, kernel " << size.kernel << ", stride " << size.stride
        << ", padding " << size.padding << ", " << size.height << " x " << size.width;
  }
}

/// Computes in two parts, as two threads do; nothing may be left unwritten.
template <class T>
void expect_the_definition(const ChwnConv& size, std::mt19937& chance) {
  const Case<T> c(size, chance);
  // Two orders of a sum differ by roundings of partial sums. Their errors add up as a random walk does, so
  // that some epsilons of the sum of magnitudes bound them for these lengths, the sums in double included.
  const double tolerance = 4.0 * static_cast<double>(std::numeric_limits<T>::epsilon()) * (1.0 + c.magnitude);
  const T none = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> small(c.small.size(), none);
  std::vector<T> large(c.large.size(), none);
  std::vector<T> gradient(c.weight.size(), none);
  for (const Span& part : {Span{0, size.rows / 2}, Span{size.rows / 2, size.rows}})
    chwn_to_small(small.data(), c.large.data(), c.weight.data(), c.strides(), c.small_bias.data(), size,
                  part);
  for (const Span& part : {Span{0, size.height / 3}, Span{size.height / 3, size.height}})
    chwn_to_large(large.data(), c.small.data(), c.weight.data(), c.strides(), c.large_bias.data(), size,
                  part);
  for (const Span& part : {Span{0, 1}, Span{1, size.large_channels}})
    chwn_weight_gradient(gradient.data(), c.strides(), c.small.data(), c.large.data(), size, part);
  expect_close(small, c.to_small, tolerance, size, "small side");
  expect_close(large, c.to_large, tolerance, size, "large side");
  expect_close(gradient, c.gradient, tolerance, size, "gradient");
}

class ChwnConvTest : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    limit_product_vectors(GetParam());
    if (product_vector_bytes() != GetParam()) GTEST_SKIP() << "this processor has no such vectors";
  }
  void TearDown() override { limit_product_vectors(64); }
};

TEST_P(ChwnConvTest, BothSidesAndTheWeightsGradientAreTheDefinitions) {
  std::mt19937 chance(7);
  const auto from = [&](std::size_t least, std::size_t most) {
    return least + chance() % (most - least + 1);
  };
  for (int i = 0; i < 60; ++i) {
    const std::size_t kernel = from(1, 5);
    const auto size = conv_of(from(1, 40), from(1, 9), from(1, 14), kernel, from(1, 3), from(0, kernel / 2),
                              kernel + from(0, 9), kernel + from(0, 9));
    expect_the_definition<float>(size, chance);
    expect_the_definition<double>(size, chance);
    if (HasFatalFailure()) return;
  }
}

// Whoever computes a sample, alone or among others, on a wide or a narrow processor with fused multiply-add.
TEST_P(ChwnConvTest, AnImagesResultDoesNotDependOnItsNeighbours) {
  std::mt19937 chance(3);
  const auto many = conv_of(19, 3, 7, 4, 2, 1, 9, 8);
  const auto one = conv_of(1, 3, 7, 4, 2, 1, 9, 8);
  const Case<float> c(many, chance);
  std::vector<float> image(c.large.size() / many.images);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = c.large[i * many.images + 11];
  std::vector<float> all(c.small.size());
  std::vector<float> alone(c.small.size() / many.images);
  chwn_to_small(all.data(), c.large.data(), c.weight.data(), c.strides(), c.small_bias.data(), many,
                {0, many.rows});
  chwn_to_small(alone.data(), image.data(), c.weight.data(), c.strides(), c.small_bias.data(), one,
                {0, one.rows});
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(alone[i], all[i * many.images + 11]) << i;
}

TEST_P(ChwnConvTest, WeightsMayLieInAnyOrder) {
  std::mt19937 chance(5);
  const auto size = conv_of(12, 5, 4, 3, 1, 1, 6, 7);
  const Case<double> c(size, chance);
  const WeightStrides last{size.kernel * size.kernel * size.large_channels, 1,
                           size.kernel * size.large_channels, size.large_channels};
  std::vector<double> weight(c.weight.size());
  const std::size_t window = size.kernel * size.kernel;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const std::size_t pair = i / window;
    weight[(pair / size.large_channels * window + i % window) * size.large_channels +
           pair % size.large_channels] = c.weight[i];
  }
  std::vector<double> small(c.small.size());
  chwn_to_small(small.data(), c.large.data(), weight.data(), last, c.small_bias.data(), size, {0, size.rows});
  expect_close(small, c.to_small, 1e-12, size, "small side");
}

INSTANTIATE_TEST_SUITE_P(Vectors, ChwnConvTest, testing::Values(16, 32, 64));

TEST(TransposeTest, ExchangesRowsAndColumnsOfAnyExtent) {
  for (const std::size_t rows : {1, 7, 8, 9, 16, 33}) {
    for (const std::size_t columns : {1, 5, 8, 15, 24, 40}) {
      std::vector<float> in(rows * columns);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
      std::vector<float> out(in.size(), -1.0F);
      std::vector<double> wide(in.begin(), in.end());
      std::vector<double> wide_out(in.size(), -1.0);
      transpose(out.data(), in.data(), rows, columns);
      transpose(wide_out.data(), wide.data(), rows, columns);
      for (std::size_t i = 0; i < in.size(); ++i) {
        EXPECT_EQ(out[i % columns * rows + i / columns], in[i]);
        EXPECT_EQ(wide_out[i % columns * rows + i / columns], wide[i]);
      }
    }
  }
}

}  // namespace
}  // namespace dtrain::kernels
