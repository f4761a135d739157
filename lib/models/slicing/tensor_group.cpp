#include "models/slicing/tensor_group.hpp"

#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace dtrain::models {

Range share_of_tokens(std::int64_t tokens, int rank, int size) {
  const std::int64_t block = (tokens + size - 1) / size;
  return {std::min(rank * block, tokens), std::min((rank + 1) * block, tokens)};
}

at::Tensor TensorGroup::gather_linear(const at::Tensor& share, std::int64_t tokens, const at::Tensor& weight,
                                      const at::Tensor& bias) {
  return at::linear(gather(share, tokens), weight, bias);
}

at::Tensor RankAlone::gather(const at::Tensor& share, std::int64_t tokens) {
  auto shape = share.sizes().vec();
  shape[1] = tokens;
  return at::zeros(shape, share.options());
}

at::Tensor RankAlone::scatter(const at::Tensor& partial) {
  const Range own = share_of_tokens(partial.size(1), rank_, size_);
  return partial.narrow(1, own.begin, own.size());
}

}  // namespace dtrain::models
