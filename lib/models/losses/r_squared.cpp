#include "models/losses/r_squared.hpp"

#include <ATen/ops/dot.h>
#include <ATen/ops/sum.h>

#include <array>
#include <limits>

namespace dtrain::models {

std::vector<double> r_squared_sums(const at::Tensor& outputs, const at::Tensor& targets) {
  const at::Tensor wanted = targets.to(outputs.device(), at::kDouble).reshape(-1);
  const at::Tensor error = outputs.to(at::kDouble).reshape(-1) - wanted;
  return {error.dot(error).item<double>(), wanted.sum().item<double>(), wanted.dot(wanted).item<double>(),
          static_cast<double>(wanted.numel())};
}

double r_squared(std::span<const double> sums) {
  const auto [errors, total, squares, count] = std::array{sums[0], sums[1], sums[2], sums[3]};
  const double variation = squares - total * total / count;
  // What rounding leaves of targets that are all the same is no variation.
  constexpr double kRounding = 1e-12;
  if (!(variation > kRounding * squares)) return std::numeric_limits<double>::quiet_NaN();
  return 1.0 - errors / variation;
}

}  // namespace dtrain::models
