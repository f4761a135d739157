#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace dtrain::models {

/// Mixed precision: while it lives, the products of this thread's forward passes (convolutions, matrix
/// products, attention) take their factors in half precision and give their results in it. Parameters keep
/// their type, and their gradients arrive in it. Sources: Micikevicius et al., "Mixed Precision Training",
/// ICLR 2018; which operation is a product is LibTorch's autocast's choice.
class ProductScope {
 public:
  /// `half`: kBFloat16 or kHalf; none: factors are taken as they are, also inside another scope.
  explicit ProductScope(std::optional<at::ScalarType> half);
  ~ProductScope();
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;

 private:
  bool changes_;
  bool enabled_before_ = false;
  at::ScalarType type_before_ = at::kFloat;
};

/// Whether `tensor` is float or double, in the CPU's memory.
bool is_full_on_cpu(const at::Tensor& tensor);

/// Whether dtrain's own kernels take `tensor`: as is_full_on_cpu(), where they are on (KernelScope).
bool own_kernels_take(const at::Tensor& tensor);

/// The same of those that pass over memory once, which also take bfloat16.
bool own_passes_take(const at::Tensor& tensor);

/// Whether they may also multiply it with `weight`: the same type, and products are not wanted in half
/// precision.
bool own_products_take(const at::Tensor& tensor, const at::Tensor& weight);

/// `tensor`, if it is defined, as a product takes it: for products inside an operation of dtrain's own,
/// which autocast does not see.
at::Tensor as_factor(const at::Tensor& tensor);

/// What products take and give here: half precision inside a ProductScope that asks for it, else float.
at::ScalarType product_type();

/// Whether the processor multiplies matrices of `half` in tiles (AMX), many times as fast as floats.
bool multiplies_in_tiles(at::ScalarType half);

/// float where `tensor` is in half precision: for losses, and for values that are kept.
at::Tensor in_full(const at::Tensor& tensor);
std::vector<at::Tensor> in_full(const std::vector<at::Tensor>& tensors);

}  // namespace dtrain::models
