#pragma once

#include <vector>

#include "models/layer.hpp"

namespace dtrain::models {

/// How texts [n, T, width] flow through layers that a tensor group shares. In training and evaluation each
/// rank has only its share of the tokens between the layers' slices, so that what works token by token
/// (norms, dropout, residual sums) is computed and kept once in the group: sequence parallelism, see
/// models/slicing/tensor_group.hpp. In generation, where tokens come one by one, every rank has them all.
class TokenFlow {
 public:
  TokenFlow() = default;  ///< Nothing is sliced.
  /// Shares of `tokens`; 0: all have all. `group`: borrowed.
  TokenFlow(TensorGroup& group, std::int64_t tokens) : group_(&group), tokens_(tokens) {}
  TokenFlow whole() const { return group_ == nullptr ? TokenFlow() : TokenFlow(*group_, 0); }

  /// x W^T + b of a sliced layer's own rows of W, x being what flows between slices.
  at::Tensor into_slices(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;
  at::Tensor out_of_slices(const at::Tensor& partial) const;

  /// Parameters as they are used between slices: where each rank applies them to its share, their gradient is
  /// the sum over the group's.
  std::vector<at::Tensor> between_slices(const std::vector<const Parameter*>& parameters) const;

  bool shared() const { return tokens_ > 0; }
  /// Of [n, own, width] the place in [n, T, width].
  Flow place() const;

  /// Tokens of the texts of which this rank has `own`, and the other way round.
  std::int64_t all_tokens(std::int64_t own) const { return shared() ? tokens_ : own; }
  std::int64_t own_tokens(std::int64_t all) const { return shared() ? place().part.size() : all; }

  TensorGroup* group() const { return group_; }

 private:
  TensorGroup* group_ = nullptr;
  std::int64_t tokens_ = 0;
};

}  // namespace dtrain::models
