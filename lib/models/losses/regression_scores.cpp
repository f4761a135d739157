#include "models/losses/r_squared.hpp"

#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

#include <array>
#include <limits>

namespace dtrain::models {
namespace {

constexpr std::size_t kSums = 4;

double of_one_target(std::span<const double> sums) {
  const auto [errors, total, squares, count] = std::array{sums[0], sums[1], sums[2], sums[3]};
  const double variation = squares - total * total / count;
  // What rounding leaves of targets that are all the same is no variation.
  constexpr double kRounding = 1e-12;
  if (!(variation > kRounding * squares)) return std::numeric_limits<double>::quiet_NaN();
  return 1.0 - errors / variation;
}

}  // namespace

std::size_t r_squared_sum_count(std::int64_t targets) { return kSums * static_cast<std::size_t>(targets); }

std::vector<double> r_squared_sums(const at::Tensor& outputs, const at::Tensor& wanted,
                                   std::int64_t targets) {
  const at::Tensor right = wanted.to(outputs.device(), at::kDouble).reshape({-1, targets});
  const at::Tensor error = outputs.to(at::kDouble).reshape({-1, targets}) - right;
  const at::Tensor sums = at::stack({(error * error).sum(0), right.sum(0), (right * right).sum(0)}).cpu();
  std::vector<double> found;
  for (std::int64_t target = 0; target < targets; ++target) {
    for (std::int64_t k = 0; k < sums.size(0); ++k) found.push_back(sums[k][target].item<double>());
    found.push_back(static_cast<double>(right.size(0)));
  }
  return found;
}

double r_squared(std::span<const double> sums) {
  double total = 0;
  for (std::size_t at = 0; at < sums.size(); at += kSums) total += of_one_target(sums.subspan(at, kSums));
  return total / static_cast<double>(sums.size() / kSums);
}

}  // namespace dtrain::models
