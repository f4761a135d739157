#include "parallel/gradients/per_sample/by_sample.hpp"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <vector>

namespace dtrain::parallel {

namespace {

/// In partial sums, so that the loop becomes one over vectors.
template <class T>
double sum_of_squares(const T* values, std::int64_t count) {
  constexpr std::int64_t kPartialSums = 8;
  std::array<double, kPartialSums> sums = {};
  const auto whole = count - count % kPartialSums;
  for (std::int64_t i = 0; i < whole; i += kPartialSums) {
    for (std::int64_t k = 0; k < kPartialSums; ++k) {
      const auto value = static_cast<double>(values[i + k]);
      sums[static_cast<std::size_t>(k)] += value * value;
    }
  }
  double sum = 0;
  for (std::int64_t i = whole; i < count; ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

at::Tensor squares_by_sample(const at::Tensor& values) {
  constexpr std::int64_t kElementsOfATask = 1 << 15;
  const auto all = values.contiguous();
  auto sums = at::zeros({all.size(0)}, at::kDouble);
  const auto each = all.numel() / std::max<std::int64_t>(all.size(0), 1);
  const auto rows_of_a_task = std::max<std::int64_t>(1, kElementsOfATask / std::max<std::int64_t>(each, 1));
  AT_DISPATCH_FLOATING_TYPES(all.scalar_type(), "squares_by_sample", [&] {
    const auto* from = all.const_data_ptr<scalar_t>();
    auto* to = sums.mutable_data_ptr<double>();
    at::parallel_for(0, all.size(0), rows_of_a_task, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = sum_of_squares(from + i * each, each);
    });
  });
  return sums;
}

void add_squares_by_pairs(const at::Tensor& left, const at::Tensor& right, at::Tensor squares) {
  constexpr std::int64_t kMostAtOnce = 1 << 17;  // 1 MiB: what is multiplied stays in the cache
  const auto n = left.size(0);
  const auto each = left.size(1) * (2 * left.size(1) + left.size(2) + right.size(2));
  const auto at_once = std::max<std::int64_t>(1, kMostAtOnce / std::max<std::int64_t>(1, each));
  for (std::int64_t begin = 0; begin < n; begin += at_once) {
    const auto count = std::min(at_once, n - begin);
    const auto products = [&](const at::Tensor& of) {
      const auto part = of.narrow(0, begin, count).to(at::kDouble);
      return at::bmm(part, part.transpose(1, 2));
    };
    squares.narrow(0, begin, count).add_(at::sum(products(left).mul_(products(right)), {1, 2}).clamp_min_(0));
  }
}

at::Tensor squares_of_rounding(const at::Tensor& of_left, const at::Tensor& of_right) {
  constexpr double kRounding = 0x1p-20;  // of a norm: 2^-24, and room for the roundings of the sums
  return of_left * of_right * (kRounding * kRounding);
}

at::Tensor weighted(const at::Tensor& values, const at::Tensor& factors) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(values.dim()), 1);
  shape[0] = values.size(0);
  return values * factors.view(shape);
}

at::Tensor padded_by_sample(const at::Tensor& rows, const at::Tensor& samples, std::int64_t n) {
  const auto count = samples.size(0);
  std::vector<std::int64_t> met(static_cast<std::size_t>(n), 0);
  auto places = at::empty({count}, at::kLong);
  const auto* of = samples.const_data_ptr<std::int64_t>();
  auto* to = places.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) to[i] = met[static_cast<std::size_t>(of[i])]++;
  const auto longest = met.empty() ? 0 : *std::ranges::max_element(met);
  for (std::int64_t i = 0; i < count; ++i) to[i] += of[i] * longest;
  auto shape = rows.sizes().vec();
  shape[0] = n * longest;
  auto padded = at::zeros(shape, rows.options());
  padded.index_copy_(0, places, rows);
  shape[0] = n;
  shape.insert(shape.begin() + 1, longest);
  return padded.view(shape);
}

}  // namespace dtrain::parallel
