#include "models/losses/regression_scores.hpp"

#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

namespace dtrain::models {
namespace {

/// Of one target: squared errors, absolute errors, targets, their squares, their count.
constexpr std::size_t kSums = 5;

double r_squared_of_one(std::span<const double> sums) {
  const auto [errors, total, squares, count] = std::array{sums[0], sums[2], sums[3], sums[4]};
  const double variation = squares - total * total / count;
  // What rounding leaves of targets that are all the same is no variation.
  constexpr double kRounding = 1e-12;
  if (!(variation > kRounding * squares)) return std::numeric_limits<double>::quiet_NaN();
  return 1.0 - errors / variation;
}

}  // namespace

ExtraColumns regression_columns(std::int64_t targets) {
  ExtraColumns found{.columns = {{"validation_r2", "1"}}, .sums = kSums * static_cast<std::size_t>(targets)};
  if (targets > kMostScoredTargets) return found;
  const auto log = targets == 1 ? ExtraColumns::Log::yes : ExtraColumns::Log::no;
  for (int target = 0; target < static_cast<int>(targets); ++target) {
    const std::string number = targets == 1 ? std::string() : fmt::format("_{}", target);
    const std::string units = targets == 1 ? std::string("target") : fmt::format("target {}", target);
    for (const char* kind : {"rmse", "mae"})
      found.columns.push_back({fmt::format("validation_{}{}", kind, number), units, log, target});
  }
  return found;
}

std::vector<double> regression_score_sums(const at::Tensor& outputs, const at::Tensor& wanted,
                                          std::int64_t targets) {
  const at::Tensor right = wanted.to(outputs.device(), at::kDouble).reshape({-1, targets});
  const at::Tensor error = outputs.to(at::kDouble).reshape({-1, targets}) - right;
  const at::Tensor sums =
      at::stack({(error * error).sum(0), error.abs().sum(0), right.sum(0), (right * right).sum(0)}).cpu();
  std::vector<double> found;
  for (std::int64_t target = 0; target < targets; ++target) {
    for (std::int64_t k = 0; k < sums.size(0); ++k) found.push_back(sums[k][target].item<double>());
    found.push_back(static_cast<double>(right.size(0)));
  }
  return found;
}

double r_squared(std::span<const double> sums) {
  double total = 0;
  for (std::size_t at = 0; at < sums.size(); at += kSums) total += r_squared_of_one(sums.subspan(at, kSums));
  return total / static_cast<double>(sums.size() / kSums);
}

std::vector<double> regression_scores(std::span<const double> sums) {
  std::vector<double> values = {r_squared(sums)};
  if (sums.size() > kSums * static_cast<std::size_t>(kMostScoredTargets)) return values;
  for (std::size_t at = 0; at < sums.size(); at += kSums) {
    const double count = sums[at + kSums - 1];
    values.push_back(std::sqrt(sums[at] / count));
    values.push_back(sums[at + 1] / count);
  }
  return values;
}

}  // namespace dtrain::models
