#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/group.hpp"
#include "models/model.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::parallel {

/// The tensor axis of the mesh as layers see it: sums over the ranks of a group, differentiable where a layer
/// needs the gradient. A sum has the same bits on every rank. It blocks where a layer needs the sum at
/// once.
class TensorRanks final : public models::TensorGroup {
 public:
  /// `group`: borrowed. The graphs of a step must not outlive this object.
  explicit TensorRanks(comm::Group& group) : group_(group) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  at::Tensor enter(const at::Tensor& x) override;
  at::Tensor leave(const at::Tensor& partial) override;
  at::Tensor gather(const at::Tensor& share, std::int64_t tokens) override;
  at::Tensor gather_linear(const at::Tensor& share, std::int64_t tokens, const at::Tensor& weight,
                           const at::Tensor& bias) override;
  at::Tensor scatter(const at::Tensor& partial) override;
  void sum(at::Tensor& values) override { reduce(values, comm::ReduceOp::sum); }
  void max(at::Tensor& values) override { reduce(values, comm::ReduceOp::max); }

  /// `values` [...] summed, in memory of its own and in an order of elements that all ranks share.
  at::Tensor summed(const at::Tensor& values);

  /// `share` [n, own, ...] of each rank's tokens joined: [n, tokens, ...].
  at::Tensor joined(const at::Tensor& share, std::int64_t tokens);
  /// This rank's tokens of the sum of `partial` [n, tokens, ...].
  at::Tensor summed_share(const at::Tensor& partial) { return summing_share(partial).wait(); }

  /// A sum under way. No other call may come before wait().
  class SharedSum {
   public:
    at::Tensor wait() const;  ///< This rank's tokens.

   private:
    friend class TensorRanks;
    comm::Handle handle_;
    at::Tensor blocks_;             // what is being summed
    at::Tensor sum_;                // of the rank's block
    at::Device device_ = at::kCPU;  // where it is wanted
    std::int64_t own_ = 0;          // of its tokens
  };
  SharedSum summing_share(const at::Tensor& partial);

  /// Bytes that went through sums on this rank so far, each counted once, and half of those that were joined
  /// or whose sum was shared out, the two halves of a sum: what a formula predicts.
  std::uint64_t bytes_summed() const { return bytes_summed_; }

 private:
  void reduce(at::Tensor& values, comm::ReduceOp op);
  at::Tensor room_for(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);
  at::Tensor room_for(at::IntArrayRef sizes, const at::TensorOptions& options);

  comm::Group& group_;
  std::unique_ptr<comm::SharedBuffer> memory_;  // that the ranks of a node can read, grown to the largest sum
  std::uint64_t bytes_summed_ = 0;
};

/// Bytes that sums over the tensor axis take for one micro-batch whose inputs have these shapes, by the
/// layers' costs; a loss over a sliced vocabulary adds three numbers per token.
double bytes_of_sums(const models::Model& model, std::vector<models::Shape> inputs);

}  // namespace dtrain::parallel
