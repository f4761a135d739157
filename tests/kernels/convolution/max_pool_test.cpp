#include "kernels/convolution/max_pool.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace dtrain::kernels {
namespace {

TEST(MaxPoolTest, TakesTheLargestOfEachWindowAndSendsItsGradientBack) {
  for (const PoolSize& size :
       {PoolSize{2, 4, 28}, {3, 5, 7}, {1, 2, 2}, {2, 14, 37}, {1, 2, 16}, {2, 4, 34}}) {
    const std::size_t rows = size.height / 2;
    const std::size_t columns = size.width / 2;
    std::vector<float> input(size.planes * size.height * size.width);
    for (std::size_t i = 0; i < input.size(); ++i)
      input[i] = std::floor(8.0F * std::sin(static_cast<float>(i * i)));
    std::vector<float> out(size.planes * rows * columns);
    std::vector<std::uint8_t> which(out.size());
    max_pool_2x2(out.data(), which.data(), input.data(), size);
    std::vector<float> gradient(out.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i + 1);
    std::vector<float> expected(input.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t corner =
          (i / (rows * columns) * size.height + i / columns % rows * 2) * size.width + i % columns * 2;
      std::size_t best = corner;
      for (const std::size_t other : {corner + 1, corner + size.width, corner + size.width + 1}) {
        if (input[other] > input[best]) best = other;
      }
      EXPECT_EQ(out[i], input[best]);
      expected[best] = gradient[i];
    }
    std::vector<float> back(input.size(), -1.0F);
    max_pool_2x2_backward(back.data(), gradient.data(), which.data(), size);
    EXPECT_EQ(back, expected);
  }
}

/// [planes, pixels, images] from [images, planes, pixels], or back.
template <class T>
std::vector<T> moved(const std::vector<T>& from, std::size_t images, bool innermost) {
  const std::size_t pixels = from.size() / images;
  std::vector<T> to(from.size());
  for (std::size_t i = 0; i < images; ++i) {
    for (std::size_t p = 0; p < pixels; ++p)
      (innermost ? to[p * images + i] : to[i * pixels + p]) =
          innermost ? from[i * pixels + p] : from[p * images + i];
  }
  return to;
}

TEST(MaxPoolTest, WithTheImageInnermostItIsTheSame) {
  for (const std::size_t images : {1, 3, 8, 21}) {
    const PoolSize of_one{2, 5, 6};
    const PoolSize of_all{2 * images, 5, 6};
    std::vector<float> input(of_all.planes * 30);
    for (std::size_t i = 0; i < input.size(); ++i)
      input[i] = i % 41 == 7 ? std::numeric_limits<float>::quiet_NaN()
                             : std::floor(4.0F * std::sin(static_cast<float>(i * i)));
    std::vector<float> out(of_all.planes * 6);
    std::vector<std::uint8_t> which(out.size());
    max_pool_2x2(out.data(), which.data(), input.data(), of_all);
    std::vector<float> found(out.size());
    std::vector<std::uint8_t> places(out.size());
    max_pool_2x2_inner(found.data(), places.data(), moved(input, images, true).data(), of_one, images);
    EXPECT_EQ(moved(places, images, false), which);
    const auto back = moved(found, images, false);
    for (std::size_t i = 0; i < out.size(); ++i)
      EXPECT_TRUE(back[i] == out[i] || (std::isnan(back[i]) && std::isnan(out[i])));

    std::vector<float> gradient(out.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i + 1);
    std::vector<float> expected(input.size(), -1.0F);
    std::vector<float> given(input.size(), -1.0F);
    max_pool_2x2_backward(expected.data(), gradient.data(), which.data(), of_all);
    max_pool_2x2_inner_backward(given.data(), moved(gradient, images, true).data(), places.data(), of_one,
                                images);
    EXPECT_EQ(moved(given, images, false), expected);
  }
}

TEST(MaxPoolTest, InBfloat16ItIsTheSame) {
  const PoolSize size{3, 5, 7};
  for (const std::size_t inner : {1, 8, 21, 64}) {
    std::vector<Bfloat16> input;
    std::vector<float> wide;
    for (std::size_t i = 0; i < size.planes * size.height * size.width * inner; ++i) {
      const auto value =
          static_cast<float>(std::sin(static_cast<double>(i * i))) * (i % 7 == 0 ? 1e-39F : 4.0F);
      input.push_back(from_float<Bfloat16>(i % 41 == 7 ? std::numeric_limits<float>::quiet_NaN() : value));
      wide.push_back(to_float(input.back()));
    }
    const std::size_t outputs = size.planes * 2 * 3 * inner;
    std::vector<Bfloat16> out(outputs), back(input.size());
    std::vector<float> wide_out(outputs), wide_back(input.size());
    std::vector<std::uint8_t> which(outputs), wide_which(outputs);
    max_pool_2x2_inner(out.data(), which.data(), input.data(), size, inner);
    max_pool_2x2_inner(wide_out.data(), wide_which.data(), wide.data(), size, inner);
    EXPECT_EQ(which, wide_which);
    for (std::size_t i = 0; i < outputs; ++i) EXPECT_EQ(out[i].bits, from_float<Bfloat16>(wide_out[i]).bits);
    max_pool_2x2_inner_backward(back.data(), out.data(), which.data(), size, inner);
    max_pool_2x2_inner_backward(wide_back.data(), wide_out.data(), wide_which.data(), size, inner);
    for (std::size_t i = 0; i < back.size(); ++i)
      EXPECT_EQ(back[i].bits, from_float<Bfloat16>(wide_back[i]).bits);
  }
}

template <class T>
void expect_nan_wins() {
  for (std::size_t place = 0; place < 4; ++place) {
    std::vector<T> input = {1, 2, 3, 4};
    input[place] = std::numeric_limits<T>::quiet_NaN();
    T out = 0;
    std::uint8_t which = 9;
    max_pool_2x2(&out, &which, input.data(), {1, 2, 2});
    EXPECT_TRUE(std::isnan(out)) << place;
    EXPECT_EQ(which, place);
  }
}

TEST(MaxPoolTest, NotANumberWins) {
  expect_nan_wins<float>();
  expect_nan_wins<double>();
}

}  // namespace
}  // namespace dtrain::kernels
