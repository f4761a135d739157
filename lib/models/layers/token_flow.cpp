#include "models/layers/token_flow.hpp"

#include <ATen/ops/cat.h>

#include "models/compute/precision.hpp"
#include "models/compute/sample_tap.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models {

at::Tensor TokenFlow::into_slices(const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& bias) const {
  if (shared()) return group_->gather_linear(as_factor(x), tokens_, as_factor(weight), as_factor(bias));
  return tapped_linear(group_ != nullptr ? group_->enter(x) : x, weight, bias);
}

at::Tensor TokenFlow::out_of_slices(const at::Tensor& partial) const {
  if (group_ == nullptr) return partial;
  return shared() ? group_->scatter(partial) : group_->leave(partial);
}

std::vector<at::Tensor> TokenFlow::between_slices(const std::vector<const Parameter*>& parameters) const {
  std::vector<at::Tensor> used;
  for (const Parameter* parameter : parameters) used.push_back(parameter->value);
  if (!shared()) return used;
  std::vector<at::Tensor> flat;  // one sum instead of several small ones
  for (const at::Tensor& value : used) flat.push_back(value.reshape({-1}));
  const at::Tensor all = group_->enter(at::cat(flat));
  std::int64_t begin = 0;
  for (at::Tensor& value : used) {
    const auto count = value.numel();
    value = all.narrow(0, begin, count).view(value.sizes());
    begin += count;
  }
  return used;
}

Flow TokenFlow::place() const {
  if (!shared()) return {};
  return {.whole = tokens_, .part = share_of_tokens(tokens_, group_->rank(), group_->size())};
}

}  // namespace dtrain::models
