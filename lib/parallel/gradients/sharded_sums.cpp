#include "parallel/gradients/sharded_sums.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"
#include "parallel/gradients/bucket_cuts.hpp"

namespace dtrain::parallel {
namespace {

std::int64_t element_bytes(const FlatParameters& parameters) {
  return static_cast<std::int64_t>(c10::elementSize(parameters.dtype()));
}

std::int64_t largest_of(const std::vector<Range>& ranges) {
  return ranges.empty() ? 0 : std::ranges::max(ranges, {}, &Range::size).size();
}

}  // namespace

ShardedSums::ShardedSums(FlatParameters& parameters, comm::Group& group, comm::Queue& queue,
                         const Config& config)
    : parameters_(parameters),
      group_(group),
      queue_(queue),
      across_(config.across),
      compression_(config.compression),
      buckets_(config.buckets.empty()
                   ? cut_buckets(parameters.entries(), config.bucket_bytes, element_bytes(parameters))
                   : config.buckets),
      bucket_of_(buckets_of(parameters.entries(), buckets_)),
      largest_(largest_of(buckets_)),
      charge_(kSlots * largest_ * element_bytes(parameters)),
      memory_(group, std::max(kSlots * largest_, FlatParameters::kAlignment), parameters.values().options()) {
  const auto& entries = parameters.entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    places_.emplace_back(*entries[i].parameter);
    if (i == 0 || bucket_of_[i] != bucket_of_[i - 1]) first_entry_.push_back(i);
  }
  first_entry_.push_back(entries.size());
  uses_ = uses_of(entries, config.met_again);
  shares_.assign(entries.size(), 0);
  received_.assign(entries.size(), 0);
  zeros_.assign(entries.size(), 0);
  passed_.assign(entries.size(), 0);
  std::int64_t held = 0;
  for (const Range& bucket : buckets_) {
    const Range part = part_of(bucket.size(), group.rank(), group.size());
    parts_.push_back({bucket.begin + part.begin, bucket.begin + part.end});
    places_in_shard_.push_back(held);
    held += part.size();
  }
  shard_ = at::zeros({held}, parameters.values().options());
  if (across_ != nullptr && compression_ != nullptr) {  // each rank of the group has chances of its own
    const auto first = group.rank() * parameters.size();
    compression_->lay_out(parameters, {{first, first + held}}, *across_);
  }
  for (Slot& slot : slots_) slot.received = at::empty({largest_of(parts_)}, shard_.options());
  own(even_ownership(config.micro_batches, all_ranks()));
  require_agreement(
      group,
      parameters.layout_hash() ^ static_cast<std::uint64_t>(config.bucket_bytes) ^
          (static_cast<std::uint64_t>(config.micro_batches) << 32U),
      "the ranks lay out the model's parameters differently",
      {.subject = "gradient shards", .advice = "start the same binary and options on every rank"});
  std::vector<models::Parameter*> parameters_of_entries;
  for (const auto& entry : entries) parameters_of_entries.push_back(entry.parameter);
  hooks_.emplace(std::move(parameters_of_entries), [this](std::size_t entry) { on_gradient(entry); });
}

void ShardedSums::own(const Ownership& owned) {
  require(std::ssize(owned) == all_ranks(), "has other ranks than the group", {.subject = "an ownership"});
  rounds_ = std::max(1, most_of(owned));
}

int ShardedSums::all_ranks() const { return group_.size() * (across_ != nullptr ? across_->size() : 1); }

std::size_t ShardedSums::bucket_of(std::int64_t turn) const {
  return static_cast<std::size_t>(turn) % buckets_.size();
}

std::int64_t ShardedSums::turn_of(std::int64_t round, std::size_t entry) const {
  return round * std::ssize(buckets_) + static_cast<std::int64_t>(bucket_of_[entry]);
}

bool ShardedSums::is_last_round(std::int64_t turn) const {
  return turn >= (rounds_ - 1) * std::ssize(buckets_);
}

Range ShardedSums::place_of(std::int64_t turn) const {
  const auto begin = turn % kSlots * largest_;
  return {begin, begin + buckets_[bucket_of(turn)].size()};
}

at::Tensor ShardedSums::view_of(std::int64_t turn, std::size_t entry) const {
  auto moved = parameters_.entries()[entry];
  moved.offset += place_of(turn).begin - buckets_[bucket_of(turn)].begin;
  return FlatParameters::view(memory_.values(), moved);
}

std::size_t ShardedSums::entry_of(const models::Parameter* parameter) const {
  const auto& entries = parameters_.entries();
  const auto place = std::ranges::find(entries, parameter, &FlatParameters::Entry::parameter);
  require(place != entries.end(), "has no gradient of its own here", {.subject = parameter->name});
  return static_cast<std::size_t>(place - entries.begin());
}

void ShardedSums::begin_step(int micro_batches) {
  require(micro_batches <= rounds_, "has more micro-batches than a rank owns", {.subject = "a step"});
  micro_batches_ = micro_batches;
  std::ranges::fill(received_, 0);
  std::ranges::fill(zeros_, 0);
  std::ranges::fill(passed_, 0);
  for (const auto& entry : parameters_.entries()) entry.parameter->value.mutable_grad().reset();
  for (auto& place : places_) {
    place.withdraw();
    place.end_step();
  }
  waiting_.clear();
  for (Slot& slot : slots_) slot.turn = -1;  // finish() has left nothing under way
  opened_ = issued_ = 0;
  advance();
}

void ShardedSums::on_gradient(std::size_t i) {
  auto& gradient = parameters_.entries()[i].parameter->value.mutable_grad();
  if (!gradient.defined()) return;
  const at::NoGradGuard no_grad;
  places_[i].withdraw();
  // Zeros of another stage's missing micro-batch may have come first: the round may lie behind the
  // micro-batches of this rank. What comes in all rounds adds up to the same.
  const std::int64_t round = received_[i] / uses_[i];
  require(
      received_[i] - zeros_[i] < micro_batches_ * uses_[i] && round < rounds_,
      "has more gradients in a step than were expected",
      {.subject = parameters_.entries()[i].parameter->name, .advice = "its bucket has left without them"});
  ++received_[i];
  take(turn_of(round, i), i, std::exchange(gradient, {}));
}

/// Memory is opened at once where an earlier bucket's has to arrive first, and only then.
void ShardedSums::take(std::int64_t turn, std::size_t entry, at::Tensor gradient) {
  while (opened_ <= turn && opened_ - kSlots < issued_) open();
  if (opened_ <= turn) {
    waiting_[turn].emplace_back(entry, std::move(gradient));
  } else {
    put(turn, entry, gradient);
  }
  advance();
}

void ShardedSums::put(std::int64_t turn, std::size_t entry, const at::Tensor& gradient) {
  Slot& slot = slot_of(turn);
  places_[entry].withdraw();  // the memory may have been opened after the gradient was computed
  const auto view = view_of(turn, entry);
  const std::size_t index = entry - first_entry_[bucket_of(turn)];
  if (!gradient.defined()) {  // zero
    if (!slot.written[index]) view.zero_();
  } else if (slot.written[index]) {
    view.add_(gradient);
  } else if (gradient.data_ptr() != view.data_ptr()) {
    if (gradient.strides() == view.strides() && gradient.is_non_overlapping_and_dense()) {
      std::memcpy(view.data_ptr(), gradient.data_ptr(), view.nbytes());
    } else {
      view.copy_(gradient);
    }
  }
  slot.written[index] = true;
  --slot.missing;
}

/// Gives the next turn its slot, once what the slot holds has arrived.
void ShardedSums::open() {
  const std::int64_t turn = opened_++;
  Slot& slot = slot_of(turn);
  settle(slot);
  const std::size_t bucket = bucket_of(turn);
  const Range entries{static_cast<std::int64_t>(first_entry_[bucket]),
                      static_cast<std::int64_t>(first_entry_[bucket + 1])};
  slot.turn = turn;
  slot.missing = 0;
  slot.written.assign(static_cast<std::size_t>(entries.size()), false);
  auto waiting = waiting_.extract(turn);
  const auto has_come = [&](std::size_t i) {
    return !waiting.empty() &&
           std::ranges::count(waiting.mapped(), i, [](const auto& one) { return one.first; }) > 0;
  };
  const auto memory = memory_.values().narrow(0, place_of(turn).begin, place_of(turn).size());
  for (auto i = first_entry_[bucket]; i < first_entry_[bucket + 1]; ++i) {
    const auto& entry = parameters_.entries()[i];
    const auto end = entry.offset + entry.count;
    const auto gap = FlatParameters::end_of(entry) - end;
    memory.narrow(0, end - buckets_[bucket].begin, gap).zero_();  // another bucket has left something there
    slot.missing += uses_[i] + (is_last_round(turn) ? shares_[i] : 0);
    if (!has_come(i)) places_[i].offer(view_of(turn, i).alias());
  }
  if (waiting.empty()) return;
  for (const auto& [entry, gradient] : waiting.mapped()) put(turn, entry, gradient);
}

void ShardedSums::issue() {
  const std::int64_t turn = issued_++;
  Slot& slot = slot_of(turn);
  const auto received = slot.received.narrow(0, 0, parts_[bucket_of(turn)].size());
  slot.handle = memory_.group().reduce_scatter(memory_.outgoing(place_of(turn)), buffer_of(received),
                                               comm::ReduceOp::sum);
}

/// Adds what a slot's bucket has come to up.
void ShardedSums::settle(Slot& slot) {
  if (slot.turn < 0) return;
  slot.handle.wait();
  const std::size_t bucket = bucket_of(slot.turn);
  const auto count = parts_[bucket].size();
  const auto sums = shard_.narrow(0, places_in_shard_[bucket], count);
  const auto received = slot.received.narrow(0, 0, count);
  slot.turn < std::ssize(buckets_) ? sums.copy_(received) : sums.add_(received);
  slot.turn = -1;
}

/// Issues what is complete, and opens what can be opened without waiting, or what gradients wait for.
void ShardedSums::advance() {
  for (bool moved = true; moved;) {
    moved = false;
    if (issued_ < opened_ && slot_of(issued_).missing == 0) {
      issue();
      moved = true;
    }
    if (opened_ < turns() && opened_ - kSlots < issued_) {
      const Slot& slot = slot_of(opened_);
      // Gradients that wait are put at once, so that all ranks issue between the same other collectives.
      if (slot.turn < 0 || slot.handle.done() || waiting_.contains(opened_)) {
        open();
        moved = true;
      }
    }
  }
  queue_.progress();
}

void ShardedSums::passed(const models::Parameter* parameter) {
  const at::NoGradGuard no_grad;
  const std::size_t i = entry_of(parameter);
  ++passed_[i];
  while (received_[i] < passed_[i]) {
    const std::int64_t round = received_[i]++ / uses_[i];
    ++zeros_[i];
    take(turn_of(round, i), i, {});
  }
}

void ShardedSums::expect_share(const models::Parameter* parameter) { ++shares_[entry_of(parameter)]; }

void ShardedSums::add_share(const models::Parameter* parameter, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const std::size_t i = entry_of(parameter);
  take(turn_of(rounds_ - 1, i), i, gradient);
}

/// Issues all turns before `until`, with zeros for what has not come.
void ShardedSums::sweep(std::int64_t until) {
  while (issued_ < until) {
    if (opened_ <= issued_) open();
    const std::int64_t turn = issued_;
    Slot& slot = slot_of(turn);
    for (std::size_t index = 0; index < slot.written.size(); ++index) {
      if (!slot.written[index]) view_of(turn, first_entry_[bucket_of(turn)] + index).zero_();
    }
    slot.missing = 0;
    issue();
  }
}

// Ranks that wait for a bucket get it before this one waits for a share.
void ShardedSums::finish(const std::function<void()>& exchange_shares) {
  const at::NoGradGuard no_grad;
  for (auto& place : places_) place.withdraw();
  std::int64_t without_shares = turns();
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    if (shares_[i] > 0) without_shares = std::min(without_shares, turn_of(rounds_ - 1, i));
  }
  sweep(without_shares);
  if (exchange_shares) exchange_shares();
  sweep(turns());
  for (Slot& slot : slots_) settle(slot);
  for (auto& place : places_) place.withdraw();  // what has been opened since
  if (across_ == nullptr) return;
  const auto shard = buffer_of(shard_);
  (compression_ != nullptr ? across_->all_reduce_encoded(shard, compression_->of(0))
                           : across_->all_reduce(shard, comm::ReduceOp::sum))
      .wait();
}

}  // namespace dtrain::parallel
