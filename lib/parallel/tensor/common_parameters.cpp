#include "parallel/tensor/common_parameters.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/slicing/slices.hpp"
#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::parallel {
namespace {

/// On the CPU, one after another.
at::Tensor together(const at::Tensor& values, const std::vector<Range>& ranges) {
  std::vector<at::Tensor> parts;
  for (const Range& range : ranges) parts.push_back(values.narrow(0, range.begin, range.size()));
  return parts.empty() ? at::empty({0}, values.options().device(at::kCPU)) : at::cat(parts).cpu();
}

}  // namespace

CommonParameters::CommonParameters(const FlatParameters& parameters, const models::Parameter* left_out,
                                   comm::Group& tensor)
    : tensor_(tensor) {
  for (const auto& entry : parameters.entries()) {
    const bool is_common = models::group_slice(entry.parameter->slice) == nullptr;
    if (is_common && entry.parameter != left_out && entry.count > 0)
      ranges_.push_back({entry.offset, entry.offset + entry.count});
  }
}

/// In the part's own elements.
std::vector<Range> CommonParameters::within(const Range& part) const {
  std::vector<Range> found;
  for (const Range& range : ranges_) {
    const Range both{std::max(range.begin, part.begin), std::min(range.end, part.end)};
    if (both.begin < both.end) found.push_back({both.begin - part.begin, both.end - part.begin});
  }
  return found;
}

void CommonParameters::agree(at::Tensor values, const Range& part, bool writes) const {
  const at::NoGradGuard no_grad;
  const auto ranges = within(part);
  const at::Tensor first = together(values, ranges);
  if (first.numel() > 0) tensor_.broadcast(buffer_of(first), 0).wait();
  if (!writes || tensor_.rank() == 0) return;
  std::int64_t begin = 0;
  for (const Range& range : ranges) {
    values.narrow(0, range.begin, range.size()).copy_(first.narrow(0, begin, range.size()));
    begin += range.size();
  }
}

void CommonParameters::require_same(const at::Tensor& values, comm::Group& world, std::int64_t step) const {
  const at::NoGradGuard no_grad;
  require_same_hash(tensor_, world, hash_of(together(values, ranges_)), step);
}

}  // namespace dtrain::parallel
