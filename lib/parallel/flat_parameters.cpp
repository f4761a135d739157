#include "parallel/flat_parameters.hpp"

#include <torch/torch.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dtrain::parallel {

FlatParameters::FlatParameters(models::Model& model, at::ScalarType dtype) {
  const auto parameters = model.parameters();
  std::int64_t size = 0;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    const std::int64_t count = (*it)->value.numel();
    entries_.push_back({*it, size, count});
    size += (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  values_ = at::zeros({size}, at::TensorOptions().dtype(dtype));
  const at::NoGradGuard no_grad;
  for (const auto& entry : entries_) {
    auto slot = view(values_, entry);
    slot.copy_(entry.parameter->value);
    // A fresh leaf, not set_data(): autograd keeps the dtype of the first gradient it met.
    entry.parameter->value = slot.detach().set_requires_grad(true);
  }
}

at::Tensor FlatParameters::view(const at::Tensor& flat, const Entry& entry) {
  const auto& value = entry.parameter->value;
  return flat.as_strided(value.sizes(), value.strides(), flat.storage_offset() + entry.offset);
}

std::uint64_t FlatParameters::layout_hash() const {
  std::string text;
  for (const auto& entry : entries_) {
    text += fmt::format("{}:{}@{};", entry.parameter->name, fmt::join(entry.parameter->value.sizes(), ","),
                        entry.offset);
  }
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace dtrain::parallel
