#include "kernels/batch_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace dtrain::kernels {
namespace {

/// Values that differ from row to row and channel to channel, around a mean of `centre`.
template <class T>
std::vector<T> values(const ChannelRows& size, double centre, double phase) {
  std::vector<T> made(size.rows * size.channels);
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = static_cast<T>(centre + std::sin(0.7 * static_cast<double>(i * i % 1013) + phase));
  }
  return made;
}

template <class T>
class BatchNormKernelTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(BatchNormKernelTest, Types);

// Channels: less than a vector, odd, one tile, a tile and a remainder. Rows: one, less and more than a block.
const std::vector<ChannelRows> kSizes = {{1, 3}, {5, 32}, {64, 7}, {201, 37}, {130, 96}, {1000, 5}};

TYPED_TEST(BatchNormKernelTest, MomentsAreThoseOfThePlainSumsEvenAroundALargeMean) {
  using T = TypeParam;
  const double tolerance = sizeof(T) == 4 ? 2e-6 : 1e-13;
  for (const ChannelRows& size : kSizes) {
    for (const double centre : {0.0, 100.0}) {
      const auto x = values<T>(size, centre, 0.3);
      std::vector<double> mean(size.channels), variance(size.channels);
      const std::size_t half = size.channels / 2;  // two ranges give the same as one
      channel_moments(mean.data(), variance.data(), x.data(), size, {0, half});
      channel_moments(mean.data(), variance.data(), x.data(), size, {half, size.channels});
      for (std::size_t c = 0; c < size.channels; ++c) {
        double sum = 0.0;
        for (std::size_t r = 0; r < size.rows; ++r) sum += double{x[r * size.channels + c]};
        const double expected = sum / static_cast<double>(size.rows);
        double squares = 0.0;
        for (std::size_t r = 0; r < size.rows; ++r) {
          squares += std::pow(double{x[r * size.channels + c]} - expected, 2.0);
        }
        EXPECT_NEAR(mean[c], expected, tolerance * (1.0 + centre)) << size.rows << " x " << size.channels;
        EXPECT_NEAR(variance[c], squares / static_cast<double>(size.rows), tolerance);
      }
    }
  }
}

TYPED_TEST(BatchNormKernelTest, GradientsAreThoseOfThePlainFormulaForEachMask) {
  using T = TypeParam;
  const double tolerance = sizeof(T) == 4 ? 2e-5 : 1e-12;
  for (const ChannelRows& size : kSizes) {
    const auto x = values<T>(size, 0.2, 0.1);
    const auto residual = values<T>(size, 0.0, 0.9);
    const auto gradient = values<T>(size, 0.1, 0.5);
    const auto scale = values<T>({1, size.channels}, 1.0, 0.2);
    const auto shift = values<T>({1, size.channels}, 0.0, 0.4);
    const auto mean = values<T>({1, size.channels}, 0.2, 0.7);
    for (const T* beside : {static_cast<const T*>(nullptr), residual.data()}) {
      for (const Then then : {Then::nothing, Then::relu}) {
        std::vector<T> y(x.size());
        scale_channels<T>({y.data(), x.data(), beside, scale.data(), shift.data(), then}, size);
        const MaskedGradient<T> g{gradient.data(), x.data(),     beside == nullptr ? nullptr : y.data(),
                                  scale.data(),    shift.data(), then};
        std::vector<double> sum(size.channels), product(size.channels);
        channel_gradient_sums(sum.data(), product.data(), g, mean.data(), size, {0, size.channels});
        std::vector<T> dx(x.size()), masked(x.size());
        channel_gradient(dx.data(), masked.data(), g, scale.data(), shift.data(), mean.data(), size);
        for (std::size_t c = 0; c < size.channels; ++c) {
          double expected_sum = 0.0;
          double expected_product = 0.0;
          for (std::size_t r = 0; r < size.rows; ++r) {
            const std::size_t i = r * size.channels + c;
            const T linear = x[i] * scale[c] + shift[c];
            const T before = beside == nullptr ? linear : linear + beside[i];
            EXPECT_EQ(y[i], then == Then::relu && before < 0 ? T{0} : before);
            const T passed = then == Then::relu && before <= 0 ? T{0} : gradient[i];
            EXPECT_EQ(masked[i], passed);
            EXPECT_NEAR(dx[i], passed * scale[c] + (x[i] * shift[c] + mean[c]), tolerance);
            expected_sum += double{passed};
            expected_product += double{passed} * (double{x[i]} - double{mean[c]});
          }
          EXPECT_NEAR(sum[c], expected_sum, tolerance * (1.0 + std::abs(expected_sum)));
          EXPECT_NEAR(product[c], expected_product, tolerance * (1.0 + std::abs(expected_product)));
        }
      }
    }
  }
}

TYPED_TEST(BatchNormKernelTest, ANaNStaysOne) {
  using T = TypeParam;
  const T nan = std::nan("");
  const std::vector<T> x(9, nan), scale(9, T{1}), shift(9, T{0});
  std::vector<T> y(9);
  scale_channels<T>({y.data(), x.data(), nullptr, scale.data(), shift.data(), Then::relu}, {1, 9});
  for (const T value : y) EXPECT_TRUE(std::isnan(value));
  const std::vector<Bfloat16> narrow(9, from_float<Bfloat16>(std::nanf("")));
  const std::vector<float> ones(9, 1.0F), zeros(9);
  std::vector<Bfloat16> rounded(9);
  scale_channels<Bfloat16>({rounded.data(), narrow.data(), nullptr, ones.data(), zeros.data(), Then::relu},
                           {1, 9});
  for (const Bfloat16 value : rounded) EXPECT_TRUE(std::isnan(to_float(value)));
}

/// Numbers that hurt: a large mean over the deviation, tiny ones, and those that bfloat16 cannot tell from 0.
std::vector<Bfloat16> hurtful(const ChannelRows& size, double phase) {
  std::vector<Bfloat16> made;
  for (const double value : values<double>(size, 0.0, phase)) {
    const std::size_t i = made.size();
    const double scales[] = {1.0, 1e-3, 1e-30, 1e-40, 3e4};
    made.push_back(
        from_float<Bfloat16>(static_cast<float>((i % 3 == 0 ? 300.0 : 0.0) + value * scales[i % 5])));
  }
  return made;
}

std::vector<float> widened(const std::vector<Bfloat16>& values) {
  std::vector<float> wide;
  for (const Bfloat16 value : values) wide.push_back(to_float(value));
  return wide;
}

void expect_rounded(const std::vector<Bfloat16>& found, const std::vector<float>& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_EQ(found[i].bits, from_float<Bfloat16>(wanted[i]).bits) << i << ": " << wanted[i];
}

// Its twin is the kernel for float, of the same numbers: all sums have the same bits, and what is stored is
// rounded once.
TEST(HalfBatchNormKernelTest, InBfloat16ItComputesWithFloats) {
  for (const ChannelRows& size : kSizes) {
    const auto x = hurtful(size, 0.3);
    const auto residual = hurtful(size, 0.9);
    const auto above = hurtful(size, 0.5);
    const auto wide_x = widened(x);
    const auto wide_residual = widened(residual);
    const auto wide_above = widened(above);
    const auto scale = values<float>({1, size.channels}, 0.1, 0.2);
    const auto shift = values<float>({1, size.channels}, 0.0, 0.4);
    std::vector<double> mean(size.channels), variance(size.channels), wide_mean(mean), wide_variance(mean);
    const ChannelRange all{0, size.channels};
    channel_moments(mean.data(), variance.data(), x.data(), size, all);
    channel_moments(wide_mean.data(), wide_variance.data(), wide_x.data(), size, all);
    EXPECT_EQ(mean, wide_mean);
    EXPECT_EQ(variance, wide_variance);
    const std::vector<float> centre(mean.begin(), mean.end());
    for (const bool adds : {false, true}) {
      for (const Then then : {Then::nothing, Then::relu}) {
        std::vector<Bfloat16> y(x.size()), dx(x.size()), masked(x.size());
        std::vector<float> wide_y(x.size()), wide_dx(x.size()), wide_masked(x.size());
        scale_channels<Bfloat16>(
            {y.data(), x.data(), adds ? residual.data() : nullptr, scale.data(), shift.data(), then}, size);
        scale_channels<float>({wide_y.data(), wide_x.data(), adds ? wide_residual.data() : nullptr,
                               scale.data(), shift.data(), then},
                              size);
        expect_rounded(y, wide_y);
        wide_y = widened(y);
        const MaskedGradient<Bfloat16> g{above.data(), x.data(),     adds ? y.data() : nullptr,
                                         scale.data(), shift.data(), then};
        const MaskedGradient<float> wide_g{wide_above.data(), wide_x.data(), adds ? wide_y.data() : nullptr,
                                           scale.data(),      shift.data(),  then};
        std::vector<double> sum(mean), product(mean), wide_sum(mean), wide_product(mean);
        channel_gradient_sums(sum.data(), product.data(), g, centre.data(), size, all);
        channel_gradient_sums(wide_sum.data(), wide_product.data(), wide_g, centre.data(), size, all);
        EXPECT_EQ(sum, wide_sum);
        EXPECT_EQ(product, wide_product);
        channel_gradient(dx.data(), masked.data(), g, scale.data(), shift.data(), centre.data(), size);
        channel_gradient(wide_dx.data(), wide_masked.data(), wide_g, scale.data(), shift.data(),
                         centre.data(), size);
        expect_rounded(dx, wide_dx);
        expect_rounded(masked, wide_masked);
      }
    }
  }
}

}  // namespace
}  // namespace dtrain::kernels
