#include "parallel/memory/layer_shards.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "models/borrowed_parameter.hpp"
#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::parallel {
namespace {

/// Views and the graph keep the storage, whatever memory it has.
void give_memory(const at::Tensor& values) {
  const auto& storage = values.storage();
  const auto bytes = static_cast<std::size_t>(values.numel()) * values.element_size();
  storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
  storage.set_nbytes(bytes);
}

void take_memory(const at::Tensor& values) {
  values.storage().set_data_ptr_noswap(at::DataPtr());
  values.storage().set_nbytes(std::size_t{0});
}

/// Which of the ranges a parameter lies in.
std::size_t range_of(const std::vector<Range>& ranges, const FlatParameters::Entry& entry) {
  const auto next = std::ranges::upper_bound(ranges, entry.offset, {}, &Range::begin);
  return static_cast<std::size_t>(next - ranges.begin()) - 1;
}

const FlatParameters::Entry* entry_of(const FlatParameters& parameters, const models::Parameter& parameter) {
  const auto place = std::ranges::find(parameters.entries(), &parameter, &FlatParameters::Entry::parameter);
  return place != parameters.entries().end() ? &*place : nullptr;
}

}  // namespace

std::vector<Range> runs_of_layers(models::Model& model, const FlatParameters& parameters) {
  std::vector<Range> runs;
  for (auto layer = model.layers().rbegin(); layer != model.layers().rend(); ++layer) {
    std::optional<Range> run;
    for (const auto& parameter : (*layer)->parameters()) {
      const auto* entry = entry_of(parameters, parameter);
      if (entry == nullptr) continue;
      if (!run) run = Range{entry->offset, entry->offset};
      run->begin = std::min(run->begin, entry->offset);
      run->end = std::max(run->end, FlatParameters::end_of(*entry));
    }
    if (run && run->size() > 0) runs.push_back(*run);
  }
  return runs;
}

LayerShards::LayerShards(models::Model& model, FlatParameters& parameters, comm::Group& group, Passed passed,
                         std::uint64_t seed)
    : parameters_(parameters),
      group_(group),
      passed_(std::move(passed)),
      ranges_(runs_of_layers(model, parameters)) {
  const at::NoGradGuard no_grad;
  const auto options = parameters.values().options();
  std::int64_t held = 0;
  for (const Range& range : ranges_) {
    const auto part = part_of(range.size(), group.rank(), group.size());
    parts_.push_back({range.begin + part.begin, range.begin + part.end});
    places_.push_back(held);
    held += part.size();
  }
  parameters.values() = at::zeros({held}, options);
  std::uint64_t hash = parameters.layout_hash();
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    wholes_.push_back({.values = at::zeros({ranges_[i].size()}, options), .users = 0, .gathering = {}});
    for (auto entry : parameters.entries()) {
      if (range_of(ranges_, entry) != i) continue;
      entry.offset -= ranges_[i].begin;
      const auto slot = FlatParameters::view(wholes_[i].values, entry);
      const auto& value = entry.parameter->value;
      slot.copy_(value.is_meta() ? models::first_values(*entry.parameter, seed) : value);
      entry.parameter->value = slot.detach().set_requires_grad(true);
    }
    constexpr std::uint64_t kPrime = 1099511628211ULL;
    hash = hash * kPrime ^ hash_of(wholes_[i].values);
    take_over(i);
    take_memory(wholes_[i].values);
  }
  require_agreement(group, hash, "the ranks start with different parameters",
                    {.subject = "parameters", .advice = "start the same binary and options on every rank"});
  for (const auto& layer : model.layers()) {
    auto& used = used_.emplace_back();
    auto& own = own_.emplace_back();
    for (const auto& parameter : layer->parameters()) {
      used.push_back(&parameter);
      if (const auto* entry = entry_of(parameters, parameter)) own = range_of(ranges_, *entry);
    }
    for (const auto* borrowed : layer->borrowed()) used.push_back(&borrowed->parameter());
    auto& needed = needed_.emplace_back();
    std::erase_if(used, [&](const auto* parameter) { return entry_of(parameters, *parameter) == nullptr; });
    for (const auto* parameter : used) {
      const auto range = range_of(ranges_, *entry_of(parameters, *parameter));
      if (std::ranges::count(needed, range) == 0) needed.push_back(range);
    }
  }
}

at::Tensor LayerShards::shard_of(std::size_t range) const {
  return parameters_.values().narrow(0, places_[range], parts_[range].size());
}

void LayerShards::hold(std::size_t range) {
  Whole& whole = wholes_[range];
  if (whole.users++ > 0) return;
  give_memory(whole.values);
  whole.gathering = group_.all_gather(buffer_of(shard_of(range)), buffer_of(whole.values));
}

void LayerShards::release(std::size_t range) {
  Whole& whole = wholes_[range];
  if (--whole.users > 0) return;
  whole.gathering.wait();
  take_memory(whole.values);
}

void LayerShards::bring(std::int64_t layer, std::optional<std::int64_t> next) {
  const auto& needed = needed_.at(static_cast<std::size_t>(layer));
  const auto before = std::exchange(ahead_, std::nullopt);
  if (before != layer) {
    for (const auto range : needed) hold(range);
    if (before) {
      for (const auto range : needed_.at(static_cast<std::size_t>(*before))) release(range);
    }
  }
  for (const auto range : needed) wholes_[range].gathering.wait();
  if (!next) return;
  for (const auto range : needed_.at(static_cast<std::size_t>(*next))) hold(range);
  ahead_ = next;
}

void LayerShards::drop(std::int64_t layer, Pass pass) {
  const auto index = static_cast<std::size_t>(layer);
  if (pass == Pass::backward) {
    for (const auto* parameter : used_.at(index)) passed_(parameter);
  }
  for (const auto range : needed_.at(index)) release(range);
}

void LayerShards::open(std::size_t layer) {
  if (!own_.at(layer)) return;
  hold(*own_[layer]);
  wholes_[*own_[layer]].gathering.wait();
}

void LayerShards::close(std::size_t layer) {
  const at::NoGradGuard no_grad;
  if (!own_.at(layer)) return;
  take_over(*own_[layer]);
  release(*own_[layer]);
}

void LayerShards::agree(const CommonParameters& common) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    if (!common.any_in(ranges_[i])) continue;
    hold(i);
    wholes_[i].gathering.wait();
    common.agree(wholes_[i].values, ranges_[i], true);
    take_over(i);
    release(i);
  }
}

/// This rank's part of what is there as a whole.
void LayerShards::take_over(std::size_t range) {
  const auto part =
      wholes_[range].values.narrow(0, parts_[range].begin - ranges_[range].begin, parts_[range].size());
  shard_of(range).copy_(part);
}

}  // namespace dtrain::parallel
