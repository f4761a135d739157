#include "parallel/strategy/state_view.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/slicing/slices.hpp"
#include "parallel/strategy/rectangles.hpp"

namespace dtrain::parallel {

StateView::StateView(FlatParameters& parameters, models::Model& model, optim::Optimizer& optimizer,
                     std::vector<Range> held, std::vector<StateTensor> more, bool saves_common)
    : parameters_(parameters),
      model_(model),
      held_(std::move(held)),
      more_(std::move(more)),
      saves_common_(saves_common) {
  for (const auto& moments : optimizer.state()) optimizer_.push_back({moments.name, moments.value});
}

std::vector<StateTensor> StateView::tensors() const {
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
  for (const auto& flat : optimizer_) {
    for (const auto& entry : parameters_.entries()) {
      if (!held_.empty()) {
        add_shards(StateTensor::kOptimizer + flat.state, flat, entry, all);
        continue;
      }
      all.push_back({StateTensor::kOptimizer + flat.state, entry.parameter->name,
                     FlatParameters::view(flat.values, entry), entry.parameter->slice, flat.owner});
    }
  }
  all.insert(all.end(), more_.begin(), more_.end());
  return all;
}

/// What the held ranges have of a parameter.
void StateView::add_shards(const std::string& group, const Flat& flat, const FlatParameters::Entry& entry,
                           std::vector<StateTensor>& all) const {
  const auto& value = entry.parameter->value;
  const auto& slice = entry.parameter->slice;
  std::int64_t before = 0;  // elements of the ranges before
  for (const Range& range : held_) {
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
                         .saves_shard = slice != nullptr || saves_common_});
        }
      }
    }
    before += range.size();
  }
}

}  // namespace dtrain::parallel
