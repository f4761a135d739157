#include "plan/held_parameters.hpp"

#include <algorithm>
#include <numeric>

#include "models/borrowed_parameter.hpp"
#include "parallel/gradients/bucket_cuts.hpp"

namespace dtrain::plan {

HeldParameters::HeldParameters(const models::Model& model, const parallel::StageCuts& cuts, int pipe_index)
    : layers_(model.layers().size()) {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    if (cuts.rank_of(cuts.stage_of(layer)) != pipe_index) continue;
    Layer& here = layers_[layer];
    here.stage = cuts.stage_of(layer);
    here.used.insert(layer);
    for (const auto& parameter : model.layers()[layer]->parameters()) {
      owners_[&parameter] = layer;
      const auto count = parameter.value.numel();
      here.all += static_cast<double>(count);
      if (parameter.frozen) continue;
      here.trained += static_cast<double>(count);
      here.largest = std::max(here.largest, static_cast<double>(count));
      sizes_.push_back(count);
    }
    for (const auto* borrowed : model.layers()[layer]->borrowed()) {
      const auto owner = owners_.find(&borrowed->parameter());
      if (owner != owners_.end()) here.used.insert(owner->second);
    }
  }
}

double HeldParameters::frozen_share(std::size_t layer) const {
  const auto& of = layers_[layer];
  return of.all > 0 ? 1 - of.trained / of.all : 0;
}

double HeldParameters::in_large_ones(std::int64_t least) const {
  double sum = 0;
  for (const auto size : sizes_) sum += size >= least ? static_cast<double>(size) : 0.0;
  return sum;
}

double HeldParameters::of_largest_tensor() const {
  return sizes_.empty() ? 0 : static_cast<double>(std::ranges::max(sizes_));
}

double HeldParameters::of_largest_layer() const {
  return std::ranges::max(layers_, {}, &Layer::trained).trained;
}

double HeldParameters::of_two_layers() const {
  double most = 0;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    auto used = layers_[layer].used;
    if (layer + 1 < layers_.size() && layers_[layer + 1].stage == layers_[layer].stage)
      used.insert(layers_[layer + 1].used.begin(), layers_[layer + 1].used.end());
    double sum = 0;
    for (const auto one : used) sum += layers_[one].trained;
    most = std::max(most, sum);
  }
  return most;
}

double HeldParameters::of_largest_bucket(std::int64_t bucket_bytes, double element_bytes) const {
  std::vector<parallel::FlatParameters::Entry> entries;
  std::int64_t offset = 0;
  for (auto size = sizes_.rbegin(); size != sizes_.rend(); ++size) {
    entries.push_back({nullptr, offset, *size});
    offset = parallel::FlatParameters::end_of(entries.back());
  }
  const auto buckets = parallel::cut_buckets(entries, bucket_bytes, static_cast<std::int64_t>(element_bytes));
  return buckets.empty() ? 0 : static_cast<double>(std::ranges::max(buckets, {}, &Range::size).size());
}

double HeldParameters::sum_of(double Layer::*count) const {
  return std::accumulate(layers_.begin(), layers_.end(), 0.0,
                         [count](double sum, const Layer& layer) { return sum + layer.*count; });
}

}  // namespace dtrain::plan
