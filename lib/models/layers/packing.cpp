#include "models/layers/packing.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <numeric>

namespace dtrain::models {

Packing pack(const std::vector<std::int64_t>& lengths, std::int64_t width) {
  const auto n = static_cast<std::int64_t>(lengths.size());
  const auto longs = at::TensorOptions().dtype(at::kLong);
  Packing packing{.order = at::empty({n}, longs), .place = at::empty({n}, longs)};
  auto* order = packing.order.data_ptr<std::int64_t>();
  std::iota(order, order + n, 0);
  const auto length = [&](std::int64_t row) { return lengths[static_cast<std::size_t>(row)]; };
  std::stable_sort(order, order + n, [&](std::int64_t a, std::int64_t b) { return length(a) > length(b); });
  auto* place = packing.place.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < n; ++i) place[order[i]] = i;

  packing.positions = at::empty({std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})}, longs);
  auto* position = packing.positions.data_ptr<std::int64_t>();
  std::int64_t alive = n;
  for (std::int64_t t = 0;; ++t) {
    while (alive > 0 && length(order[alive - 1]) <= t) --alive;
    if (alive == 0) break;
    packing.batch_sizes.push_back(alive);
    for (std::int64_t i = 0; i < alive; ++i) *position++ = order[i] * width + t;
  }
  return packing;
}

std::vector<std::int64_t> lengths_of(const at::Tensor& ids) {
  std::vector<std::int64_t> lengths;
  const at::Tensor dense = ids.contiguous();
  const auto width = dense.size(1);
  const auto* row = dense.const_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < dense.size(0); ++i, row += width) {
    lengths.push_back(std::find(row, row + width, 0) - row);
  }
  return lengths;
}

at::Tensor samples_of(const Packing& packing, std::int64_t width) {
  return at::floor_divide(packing.positions, width);
}

at::Tensor packed(const at::Tensor& padded, const Packing& packing) {
  return padded.contiguous().view({-1}).index_select(0, packing.positions);
}

}  // namespace dtrain::models
