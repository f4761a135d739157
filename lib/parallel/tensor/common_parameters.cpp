#include "parallel/tensor/common_parameters.hpp"

#include <ATen/ATen.h>

#include "models/slicing/slices.hpp"
#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::parallel {

CommonParameters::CommonParameters(const FlatParameters& parameters, const models::Parameter* left_out,
                                   comm::Group& tensor)
    : tensor_(tensor) {
  for (const auto& entry : parameters.entries()) {
    const bool is_common = models::group_slice(entry.parameter->slice) == nullptr;
    if (is_common && entry.parameter != left_out && entry.count > 0)
      ranges_.push_back({entry.offset, entry.offset + entry.count});
  }
}

/// On the CPU, one after another.
at::Tensor CommonParameters::together(const at::Tensor& values) const {
  std::vector<at::Tensor> parts;
  for (const Range& range : ranges_) parts.push_back(values.narrow(0, range.begin, range.size()));
  return parts.empty() ? at::empty({0}, values.options().device(at::kCPU)) : at::cat(parts).cpu();
}

void CommonParameters::agree(at::Tensor& values, bool writes) {
  const at::NoGradGuard no_grad;
  const at::Tensor first = together(values);
  if (first.numel() > 0) tensor_.broadcast(buffer_of(first), 0).wait();
  if (!writes || tensor_.rank() == 0) return;
  std::int64_t begin = 0;
  for (const Range& range : ranges_) {
    values.narrow(0, range.begin, range.size()).copy_(first.narrow(0, begin, range.size()));
    begin += range.size();
  }
}

void CommonParameters::require_same(const at::Tensor& values, comm::Group& world, std::int64_t step) const {
  const at::NoGradGuard no_grad;
  require_same_hash(tensor_, world, hash_of(together(values)), step);
}

}  // namespace dtrain::parallel
