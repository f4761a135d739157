#include "privacy/fourier.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace dtrain::privacy {
namespace {

std::vector<std::complex<double>> some_values(std::size_t n) {
  std::vector<std::complex<double>> values(n);
  for (std::size_t i = 0; i < n; ++i)
    values[i] = {std::sin(0.7 * static_cast<double>(i)), std::cos(static_cast<double>(i * i))};
  return values;
}

TEST(FourierTest, IsTheSumThatItIsDefinedBy) {
  for (const std::size_t n : {1, 2, 4, 16}) {
    const auto given = some_values(n);
    auto values = given;
    fourier(values, Transform::forth);
    for (std::size_t f = 0; f < n; ++f) {
      std::complex<double> sum = 0;
      for (std::size_t j = 0; j < n; ++j)
        sum += given[j] * std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(j * f % n) /
                                              static_cast<double>(n));
      EXPECT_LT(std::abs(values[f] - sum), 1e-13) << n << " " << f;
    }
  }
}

TEST(FourierTest, ForthAndBackLeavesValuesWithinItsBound) {
  const std::size_t n = 1 << 12;
  const auto given = some_values(n);
  auto values = given;
  fourier(values, Transform::forth);
  fourier(values, Transform::back);
  double sum = 0;
  for (const auto& value : given) sum += std::abs(value);
  for (std::size_t i = 0; i < n; ++i) EXPECT_LT(std::abs(values[i] - given[i]), 2 * fourier_error(n) * sum);
}

}  // namespace
}  // namespace dtrain::privacy
