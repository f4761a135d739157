#include "parallel/gradients/flat_parameters.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace dtrain::parallel {

namespace {

std::int64_t aligned(std::int64_t count) {
  return (count + FlatParameters::kAlignment - 1) / FlatParameters::kAlignment * FlatParameters::kAlignment;
}

std::vector<models::Parameter*> trained(models::Model& model) {
  auto parameters = model.parameters();
  std::erase_if(parameters, [](const models::Parameter* parameter) { return parameter->frozen; });
  return parameters;
}

/// The last comes first, but those that are to lie before their next keep their order.
std::vector<models::Parameter*> laid_out(models::Model& model) {
  auto parameters = trained(model);
  std::ranges::reverse(parameters);
  auto first = parameters.begin();
  while (first != parameters.end()) {
    auto end = first + 1;
    while (end != parameters.end() && (*end)->before_next) ++end;
    std::reverse(first, end);
    first = end;
  }
  return parameters;
}

}  // namespace

std::int64_t FlatParameters::size_of(models::Model& model) {
  std::int64_t size = 0;
  for (const auto* parameter : trained(model)) size += aligned(parameter->value.numel());
  return std::max(size, kAlignment);  // a stage may have nothing to train
}

FlatParameters::FlatParameters(models::Model& model, at::ScalarType dtype)
    : FlatParameters(model, at::zeros({size_of(model)}, at::TensorOptions().dtype(dtype)), Values::put) {}

FlatParameters::FlatParameters(models::Model& model, at::Tensor block, Values values)
    : values_(std::move(block)), size_(size_of(model)) {
  std::int64_t size = 0;
  for (auto* const parameter : laid_out(model)) {
    const std::int64_t count = parameter->value.numel();
    entries_.push_back({parameter, size, count});
    size += aligned(count);
  }
  if (values == Values::elsewhere) return;
  const at::NoGradGuard no_grad;
  for (const auto& entry : entries_) {
    auto slot = view(values_, entry);
    if (values == Values::put) slot.copy_(entry.parameter->value);
    // A fresh leaf, not set_data(): autograd keeps the dtype of the first gradient it met.
    entry.parameter->value = slot.detach().set_requires_grad(true);
  }
}

std::int64_t FlatParameters::end_of(const Entry& entry) { return entry.offset + aligned(entry.count); }

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
