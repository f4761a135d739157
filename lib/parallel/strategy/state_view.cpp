#include "parallel/strategy/state_view.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/slicing/slices.hpp"
#include "parallel/strategy/rectangles.hpp"

namespace dtrain::parallel {
namespace {

/// The part of a state tensor in codes that `view`, which has no memory, stands for.
at::Tensor decoded_part(const optim::Optimizer& rule, std::size_t index, const at::Tensor& view) {
  const auto begin = view.storage_offset();
  std::int64_t size = 1;
  for (std::int64_t dim = 0; dim < view.dim(); ++dim) size += (view.size(dim) - 1) * view.stride(dim);
  return rule.decoded(index, {begin, begin + size}).as_strided(view.sizes(), view.strides(), 0);
}

}  // namespace

StateView::StateView(FlatParameters& parameters, models::Model& model, optim::Optimizer& optimizer,
                     std::optional<std::vector<Range>> held, std::vector<StateTensor> more, Saves saves)
    : parameters_(parameters),
      model_(model),
      rule_(&optimizer),
      held_(std::move(held)),
      more_(std::move(more)),
      saves_(saves) {}

std::vector<StateTensor> StateView::tensors(Use use) const {
  std::vector<StateTensor> all;
  for (const auto* buffer : model_.buffers()) {
    all.push_back({StateTensor::kModel, buffer->name, buffer->value, buffer->slice});
  }
  for (const auto& entry : parameters_.entries()) {
    if (holds_shards())
      add_shards(StateTensor::kModel, {.state = {}, .values = parameters_.values()}, entry, all);
  }
  for (const auto* parameter : model_.parameters()) {
    if (holds_shards() && !parameter->frozen) continue;
    all.push_back({StateTensor::kModel, parameter->name, parameter->value.detach(), parameter->slice});
  }
  auto states = optimizer_;
  const auto coded = rule_ != nullptr && use == Use::read ? rule_->coded_names() : std::vector<std::string>();
  for (const auto& name : coded)
    states.push_back({name, at::empty({held_count()}, at::TensorOptions(at::kMeta).dtype(at::kFloat))});
  if (rule_ != nullptr && coded.empty()) {
    for (const auto& moments : rule_->state()) states.push_back({moments.name, moments.value});
  }
  for (std::size_t index = 0; index < states.size(); ++index) {
    const auto& flat = states[index];
    const auto before = all.size();
    for (const auto& entry : parameters_.entries()) {
      if (held_) {
        add_shards(StateTensor::kOptimizer + flat.state, flat, entry, all);
        continue;
      }
      all.push_back({StateTensor::kOptimizer + flat.state, entry.parameter->name,
                     FlatParameters::view(flat.values, entry), entry.parameter->slice, flat.owner});
    }
    if (coded.empty()) continue;
    for (std::size_t i = before; i < all.size(); ++i)
      all[i].decoded = [rule = rule_, index, view = all[i].value] {
        return decoded_part(*rule, index, view);
      };
  }
  all.insert(all.end(), more_.begin(), more_.end());
  return all;
}

/// Elements of the optimizer's state.
std::int64_t StateView::held_count() const {
  if (!held_) return parameters_.size();
  std::int64_t count = 0;
  for (const Range& range : *held_) count += range.size();
  return count;
}

/// What the held ranges have of a parameter.
void StateView::add_shards(const std::string& group, const Flat& flat, const FlatParameters::Entry& entry,
                           std::vector<StateTensor>& all) const {
  const auto& value = entry.parameter->value;
  const auto& slice = entry.parameter->slice;
  std::int64_t before = 0;  // elements of the ranges before
  for (const Range& range : *held_) {
    const Range common{std::max(range.begin, entry.offset), std::min(range.end, entry.offset + entry.count)};
    if (common.size() > 0) {
      const Range part{common.begin - entry.offset, common.end - entry.offset};
      const auto first = flat.values.storage_offset() + before + entry.offset - range.begin;
      for (auto& rectangle : rectangles_of(part, value.sizes().vec(), value.strides().vec())) {
        auto pieces = slice == nullptr ? std::vector<Rectangle>{std::move(rectangle)}
                                       : in_whole(*slice, rectangle, value.strides().vec());
        for (auto& piece : pieces) {
          auto shard = flat.values.as_strided(piece.extent, value.strides(), first + piece.place);
          all.push_back({.group = group,
                         .name = entry.parameter->name,
                         .value = std::move(shard),
                         .owner = flat.owner,
                         .shard = Slice{.name = entry.parameter->name,
                                        .global_shape = models::whole_shape(value, slice),
                                        .offset = std::move(piece.offset),
                                        .extent = std::move(piece.extent)},
                         .saves_shard = saves_.shards && (slice != nullptr || saves_.common)});
        }
      }
    }
    before += range.size();
  }
}

}  // namespace dtrain::parallel
