#include "state/gather.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "models/slicing/slices.hpp"

namespace dtrain::state {

void gather_parts(const models::HeldSlice& slice, const std::vector<at::Tensor>& parts, at::Tensor* whole,
                  PartMessages& messages) {
  const auto count = static_cast<int>(parts.size());
  for (int index = 0; index < count; ++index) {
    at::Tensor held = parts[static_cast<std::size_t>(index)];
    if (whole == nullptr) {
      if (held.defined()) messages.send(held.cpu().contiguous());
      continue;
    }
    const Range part = part_of(models::sliced_extent(slice), index, count);
    if (!held.defined()) {
      held = at::empty(models::held_shape(slice, part), whole->options().requires_grad(false));
      messages.receive(held, index);
    }
    models::put_part(*whole, slice, part, held);
  }
}

std::vector<int> share_out(const std::vector<std::int64_t>& bytes, std::int64_t most,
                           std::int64_t smallest_share) {
  const auto all = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  std::vector<std::int64_t> loads(
      static_cast<std::size_t>(std::clamp<std::int64_t>(all / smallest_share, 1, most)), 0);
  std::vector<int> takers;
  for (const auto count : bytes) {
    const auto least = std::ranges::min_element(loads);
    *least += count;
    takers.push_back(static_cast<int>(least - loads.begin()));
  }
  return takers;
}

}  // namespace dtrain::state
