#include "models/compute/precision.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/cpu/Utils.h>

#include <array>

#include "models/compute/kernel_scope.hpp"

namespace dtrain::models {
namespace {

constexpr std::array kDevices = {at::kCPU, at::kCUDA};  // set together: a run computes on one of them
constexpr auto kAny = kDevices[0];

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

void set(bool enabled, at::ScalarType type) {
  for (const auto device : kDevices) {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, type);
  }
}

}  // namespace

ProductScope::ProductScope(std::optional<at::ScalarType> half)
    : changes_(half.has_value() || at::autocast::is_autocast_enabled(kAny)) {
  if (!changes_) return;
  enabled_before_ = at::autocast::is_autocast_enabled(kAny);
  type_before_ = at::autocast::get_autocast_dtype(kAny);
  at::autocast::increment_nesting();
  set(half.has_value(), half.value_or(type_before_));
}

ProductScope::~ProductScope() {
  if (!changes_) return;
  // Weights that were converted are kept for the scope: the next step has other ones.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set(enabled_before_, type_before_);
}

bool is_full_on_cpu(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cpu() && (type == at::kFloat || type == at::kDouble);
}

bool own_kernels_take(const at::Tensor& tensor) { return own_kernels_are_on() && is_full_on_cpu(tensor); }

bool own_passes_take(const at::Tensor& tensor) {
  return own_kernels_take(tensor) ||
         (own_kernels_are_on() && tensor.is_cpu() && tensor.scalar_type() == at::kBFloat16);
}

bool own_products_take(const at::Tensor& tensor, const at::Tensor& weight) {
  return own_kernels_take(tensor) && weight.scalar_type() == tensor.scalar_type() &&
         !at::autocast::is_autocast_enabled(kAny);
}

at::Tensor as_factor(const at::Tensor& tensor) {
  const bool converts = tensor.defined() && at::autocast::is_autocast_enabled(kAny);
  return converts ? tensor.to(at::autocast::get_autocast_dtype(kAny)) : tensor;
}

at::ScalarType product_type() {
  return at::autocast::is_autocast_enabled(kAny) ? at::autocast::get_autocast_dtype(kAny) : at::kFloat;
}

bool multiplies_in_tiles(at::ScalarType half) {
  const auto has = [](const char* name) {
    const auto found = at::cpu::get_cpu_capabilities();
    const auto unit = found.find(name);
    return unit != found.end() && unit->second.isBool() && unit->second.toBool();
  };
  static const bool bfloat16 = has("amx_bf16");
  static const bool float16 = has("amx_fp16");
  return half == at::kBFloat16 ? bfloat16 : half == at::kHalf && float16;
}

at::Tensor in_full(const at::Tensor& tensor) {
  return tensor.defined() && is_half(tensor) ? tensor.to(at::kFloat) : tensor;
}

std::vector<at::Tensor> in_full(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> full;
  for (const at::Tensor& tensor : tensors) full.push_back(in_full(tensor));
  return full;
}

}  // namespace dtrain::models
