#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/slice.hpp"

namespace dtrain::models {

/// The ranks that hold the slices of one copy of a layer, as the layer sees them: what flows into and out of
/// its slices. Every call is made by all of them alike, in the same order. parallel puts communication behind
/// it.
/// Sources: Shoeybi et al., "Megatron-LM", 2019, section 3; for gather() and scatter() Korthikanti et al.,
/// "Reducing Activation Recomputation in Large Transformer Models", 2022, section 4.2.2.
class TensorGroup {
 public:
  virtual ~TensorGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// `x`, which all ranks have alike, on its way into the slices: its gradient is the sum of theirs.
  virtual at::Tensor enter(const at::Tensor& x) = 0;
  /// The sum of what the slices give; the gradient of each is that of the sum.
  virtual at::Tensor leave(const at::Tensor& partial) = 0;

  /// The same where between its slices each rank has only its share of the tokens, see share_of_tokens():
  /// `share` [n, own, ...] of what enters becomes all of it, [n, tokens, ...];
  virtual at::Tensor gather(const at::Tensor& share, std::int64_t tokens) = 0;
  /// the same with the product that follows, gather(share) weight^T + bias (undefined: none), so that in
  /// backward the sum of the slices' gradients may overlap with the product for the weight's;
  virtual at::Tensor gather_linear(const at::Tensor& share, std::int64_t tokens, const at::Tensor& weight,
                                   const at::Tensor& bias);
  /// and of the sum of `partial` [n, tokens, ...] the rank's share is left, [n, own, ...].
  virtual at::Tensor scatter(const at::Tensor& partial) = 0;

  /// In place and without gradient: the sum or the largest over all ranks.
  virtual void sum(at::Tensor& values) = 0;
  virtual void max(at::Tensor& values) = 0;
};

/// The tokens that a rank of a group of `size` keeps of `tokens`: equal blocks, the last ones shorter or
/// empty.
Range share_of_tokens(std::int64_t tokens, int rank, int size);

/// One rank of a group of which there are no others: places and shapes, no sums. For planning and tests.
class RankAlone final : public TensorGroup {
 public:
  RankAlone(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  at::Tensor enter(const at::Tensor& x) override { return x; }
  at::Tensor leave(const at::Tensor& partial) override { return partial; }
  at::Tensor gather(const at::Tensor& share, std::int64_t tokens) override;
  at::Tensor scatter(const at::Tensor& partial) override;
  void sum(at::Tensor& /*values*/) override {}
  void max(at::Tensor& /*values*/) override {}

 private:
  int rank_;
  int size_;
};

}  // namespace dtrain::models
