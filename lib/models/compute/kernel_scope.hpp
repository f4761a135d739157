#pragma once

namespace dtrain::models {

/// What layers compute with: dtrain's own kernels wherever these take the tensors, or LibTorch's operators
/// throughout. Both give the same numbers to rounding, so each is a check of the other. fused: own, and those
/// that join several operations for a GPU; they have twins for the CPU.
enum class Kernels { own, libtorch, fused };

/// While it lives, the forward passes of this thread take `kernels`, and so do their backward passes.
class KernelScope {
 public:
  explicit KernelScope(Kernels kernels);
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  Kernels before_;
};

/// Whether layers may use dtrain's own kernels here.
bool own_kernels_are_on();
/// Whether they may also use those that join several operations.
bool fused_kernels_are_on();

}  // namespace dtrain::models
