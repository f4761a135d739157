#include "parallel/gradients/gradient_buckets.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "parallel/agreement.hpp"
#include "parallel/gradients/bucket_cuts.hpp"
#include "parallel/gradients/squares.hpp"

namespace dtrain::parallel {

GradientBuckets::GradientBuckets(FlatParameters& parameters, comm::Group& group, comm::Queue& queue,
                                 BucketConfig config, const CollectedGradients& collected,
                                 StepCapture* capture)
    : parameters_(parameters),
      group_(group),
      queue_(queue),
      config_(config),
      capture_(capture),
      charge_(parameters.size() * static_cast<std::int64_t>(c10::elementSize(parameters.dtype()))),
      memory_(group, parameters.size(), parameters.values().options()) {
  for (const auto& entry : parameters.entries()) {
    if (entry.parameter == collected.left_out) continue;
    entries_.push_back(entry);
    places_.emplace_back(*entry.parameter);
  }
  make_buckets(config.bucket_bytes);
  uses_ = uses_of(entries_, collected.met_again);
  choose_parts();
  if (config.compression != nullptr) config.compression->lay_out(parameters, shared_out(), group);
  require_agreement(
      group, parameters.layout_hash() ^ static_cast<std::uint64_t>(config.bucket_bytes),
      "the ranks lay out the model's parameters differently",
      {.subject = "gradient buckets", .advice = "start the same binary and options on every rank"});
  std::vector<models::Parameter*> parameters_of_entries;
  for (const auto& entry : entries_) parameters_of_entries.push_back(entry.parameter);
  hooks_.emplace(std::move(parameters_of_entries), [this](std::size_t entry) { on_gradient(entry); });
}

void GradientBuckets::make_buckets(std::int64_t bucket_bytes) {
  const auto ranges =
      cut_buckets(entries_, bucket_bytes, static_cast<std::int64_t>(gradients().element_size()));
  for (const Range& range : ranges) buckets_.push_back({.begin = range.begin, .end = range.end});
  bucket_of_ = buckets_of(entries_, ranges);
  for (const std::size_t bucket : bucket_of_) ++buckets_[bucket].parameters;
  for (const auto& entry : entries_) views_.push_back(FlatParameters::view(gradients(), entry));
  received_.assign(entries_.size(), 0);
  shares_.assign(entries_.size(), 0);
}

void GradientBuckets::choose_parts() {
  if (config_.update == BucketConfig::Update::everything || group_.size() == 1) {
    update_parts_ = {{0, gradients().numel()}};
    for (const auto& bucket : buckets_) {
      const auto part = part_of(bucket.end - bucket.begin, group_.rank(), group_.size());
      own_parts_.push_back({bucket.begin + part.begin, bucket.begin + part.end});
    }
    return;
  }
  updates_parts_ = true;
  for (const auto& bucket : buckets_) {
    const auto whole = bucket.range();
    auto part = part_of(whole.size(), group_.rank(), group_.size());
    if (config_.update == BucketConfig::Update::parts) {
      const auto reduced = memory_.group().reduced_part(memory_.place(whole), config_.algorithm);
      if (reduced.size() < whole.size()) part = reduced;  // else all sums are on every rank: any cut will do
    }
    update_parts_.push_back({bucket.begin + part.begin, bucket.begin + part.end});
  }
  for (const Range& part : update_parts_) {
    const auto own = config_.across == nullptr
                         ? Range{0, part.size()}
                         : part_of(part.size(), config_.across->rank(), config_.across->size());
    own_parts_.push_back({part.begin + own.begin, part.begin + own.end});
  }
}

std::vector<Range> GradientBuckets::shared_out() const {
  std::vector<Range> all;
  for (const auto& bucket : buckets_) all.push_back(bucket.range());
  return all;
}

/// Begins to sum a bucket over the ranks.
comm::Handle GradientBuckets::sum(std::size_t bucket) const {
  using Update = BucketConfig::Update;
  auto& group = memory_.group();
  const auto sums = memory_.outgoing(buckets_[bucket].range());
  if (config_.compression != nullptr) return group.all_reduce_encoded(sums, config_.compression->of(bucket));
  switch (config_.update) {
    case Update::everything:
      return group.all_reduce(sums, comm::ReduceOp::sum, config_.algorithm);
    case Update::parts:
      return group.reduce_parts(sums, comm::ReduceOp::sum, config_.algorithm);
    case Update::shards:
      return group.reduce_scatter(sums, memory_.place(update_parts_[bucket]), comm::ReduceOp::sum);
  }
  throw Error("is unknown", {.subject = "the update of gradient buckets"});
}

void GradientBuckets::begin_step(int micro_batches) {
  micro_batches_ = micro_batches;
  own_squares_ = 0;
  next_bucket_ = crossed_ = 0;
  std::fill(received_.begin(), received_.end(), 0);
  for (auto& bucket : buckets_) bucket.missing = bucket.parameters;
  // Undefined, not zero: the first gradient is written or copied into place, which spares filling and adding.
  for (std::size_t i = 0; i < views_.size(); ++i) {
    auto& place = places_[i];
    entries_[i].parameter->value.mutable_grad().reset();
    place.offer(views_[i].alias());  // autograd takes over a tensor without other references
    const bool one_use = uses_[i] == 1 && shares_[i] == 0;
    micro_batches > 1 && one_use ? place.begin_step(micro_batches) : place.end_step();
  }
}

void GradientBuckets::on_gradient(std::size_t i) {
  const auto& parameter = *entries_[i].parameter;
  auto& gradient = parameter.value.mutable_grad();
  auto& place = places_[i];
  auto& view = views_[i];
  if (!gradient.defined()) return;  // held back: hooks are called all the same
  if (received_[i] == 0) {
    const at::NoGradGuard no_grad;
    place.withdraw();
    if (gradient.data_ptr() == view.data_ptr()) {
      // Written in place.
    } else if (view.is_cpu() && gradient.strides() == view.strides() &&
               gradient.is_non_overlapping_and_dense()) {
      std::memcpy(view.data_ptr(), gradient.data_ptr(), view.nbytes());
    } else {
      view.copy_(gradient);
    }
    gradient = view;
  } else if (gradient.data_ptr() != view.data_ptr()) {
    throw Error(
        "a gradient has left its bucket",
        {.subject = parameter.name, .advice = "nothing may replace .grad between two backward passes"});
  }
  const auto* memory = place.step_memory();
  const int summed = memory != nullptr ? memory->summed() : 1;
  if (capture_ == nullptr || !capture_->capturing()) return count(i, summed);
  const bool sends = completes(i, summed) && buckets_[bucket_of_[i]].missing == 0 && group_.size() > 1;
  const bool is_last = bucket_of_[i] + 1 == buckets_.size();  // nothing follows that it could go beside
  const auto again = [this, i, summed] { count(i, summed); };
  sends && !is_last ? capture_->repeat_between(again) : capture_->repeat(again);
}

void GradientBuckets::count(std::size_t i, int micro_batches) {
  if (completes(i, micro_batches)) issue_ready_buckets();
}

/// Whether the entry's gradient of the step has come, with these micro-batches.
bool GradientBuckets::completes(std::size_t i, int micro_batches) {
  const int all = micro_batches_ * uses_[i] + shares_[i];
  received_[i] += micro_batches;
  require(received_[i] <= all, "has more gradients in a step than were expected",
          {.subject = entries_[i].parameter->name, .advice = "its bucket has left without them"});
  if (received_[i] < all) return false;
  --buckets_[bucket_of_[i]].missing;
  return true;
}

std::size_t GradientBuckets::entry_of(const models::Parameter* parameter) const {
  const auto place = std::ranges::find(entries_, parameter, &FlatParameters::Entry::parameter);
  require(place != entries_.end(), "has no gradient of its own here", {.subject = parameter->name});
  return static_cast<std::size_t>(place - entries_.begin());
}

void GradientBuckets::expect_share(const models::Parameter* parameter) { ++shares_[entry_of(parameter)]; }

void GradientBuckets::add_share(const models::Parameter* parameter, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const std::size_t i = entry_of(parameter);
  if (received_[i] == 0) {
    views_[i].copy_(gradient);
    places_[i].withdraw();
    entries_[i].parameter->value.mutable_grad() = views_[i];
  } else {
    views_[i].add_(gradient.to(views_[i].device()));
  }
  count(i);
}

void GradientBuckets::issue_ready_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) {
    const std::size_t bucket = next_bucket_++;
    if (measures_own_) {
      const Range range = buckets_[bucket].range();
      own_squares_ += squares_of(gradients(), {&range, 1}).front().sum;
    }
    if (exchanges()) buckets_[bucket].handle = sum(bucket);
  }
  cross(false);
  queue_.progress();
}

/// Begins to add up over the other groups what is summed in this one: in order, as on all ranks. `wait`: for
/// what is not.
void GradientBuckets::cross(bool wait) {
  if (config_.across == nullptr || !exchanges()) return;
  while (crossed_ < next_bucket_ && (wait || buckets_[crossed_].handle.done())) {
    Bucket& bucket = buckets_[crossed_];
    bucket.handle.wait();
    bucket.crossing = config_.across->all_reduce(memory_.place(update_parts_[crossed_]), comm::ReduceOp::sum);
    ++crossed_;
  }
}

void GradientBuckets::finish(const std::function<void()>& exchange_shares) {
  if (exchange_shares) exchange_shares();  // they take part in the buckets' sums
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const auto* memory = places_[i].step_memory();
    require(memory == nullptr || !memory->incomplete(),
            "has gradients held back for a micro-batch that did not come",
            {.subject = entries_[i].parameter->name});
    places_[i].end_step();
    if (received_[i] == 0) views_[i].zero_();
  }
  for (auto& bucket : buckets_) bucket.missing = 0;
  issue_ready_buckets();
  cross(true);
  for (auto& bucket : buckets_) {
    if (exchanges())
      memory_.take_in(config_.across != nullptr ? bucket.crossing : bucket.handle, bucket.range());
  }
}

}  // namespace dtrain::parallel
