#include "parallel/gradients/per_sample/by_sample.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace dtrain::parallel {

at::Tensor squares_by_sample(const at::Tensor& values) {
  const auto rows = values.reshape({values.size(0), -1});
  return at::sum(at::square(rows), 1, false, at::kDouble);
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
