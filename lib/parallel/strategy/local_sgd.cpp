#include "parallel/strategy/local_sgd.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "parallel/agreement.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {
namespace {

/// Whether an outer update leaves the average as it is.
bool has_no_outer(const StrategyOptions& options) {
  return options.outer_optimizer == "none" ||
         (options.outer_learning_rate == 1.0 && options.outer_momentum == 0.0);
}

constexpr double kOfAgreed = 0.5;  // of the values of a late part, as in the paper of LateParts

/// Whether parameters are exchanged part by part, late, or as differences.
bool is_partial(const StrategyOptions& options) {
  return options.fragments > 1 || options.overlap_steps > 0 || options.exchange_type != "full";
}

int extra_blocks(const StrategyOptions& options) {
  const bool keeps_agreed = !has_no_outer(options) || is_partial(options);
  const bool stays_apart = options.fragments > 1 || options.overlap_steps > 0;
  return (keeps_agreed ? 2 : 0) + (stays_apart ? 1 : 0) + (options.exchange_type != "full" ? 1 : 0) +
         (options.overlap_steps > 0 ? 2 : 0);
}

/// A mean of the weights after each step: with sgd it is what the mean gradient gives, and so ddp is run,
/// with its bits. Adam's moments of single copies would give another step; ddp's is taken for them as well.
bool is_lock_step(const StrategyOptions& options) {
  return options.sync_period == "1" && has_no_outer(options) && options.sync_optimizer != "reset" &&
         !is_partial(options);
}

Answer can_average(const Setting& setting) {
  if (setting.half == at::kHalf) return {"in fp16 each copy would scale its loss differently"};
  return {};
}

}  // namespace

StrategyEntry local_sgd() {
  return {.name = "local_sgd",
          .rule = "each copy makes --sync-period steps of its own, then all take the mean of their weights",
          .options = {"sync-period", "sync-optimizer", "local-after", "outer-optimizer",
                      "outer-learning-rate", "outer-momentum", "fragments", "overlap-steps", "exchange-type"},
          .blocks = extra_blocks,
          .can = LocalSgd::can,
          .make = [](const StrategyParts& parts) -> std::unique_ptr<Strategy> {
            if (is_lock_step(parts.setting.options)) return std::make_unique<Synchronous>(parts);
            return std::make_unique<LocalSgd>(parts);
          }};
}

Abilities LocalSgd::can(const Setting& setting) {
  if (is_lock_step(setting.options)) return Synchronous::can(setting);
  return {.runs = can_average(setting),
          .replays_graphs = {"a step within a round is another than its last one"},
          .updates_by_rows = {"the copies hold different tables within a round"},
          .rolls_back = {"the copies differ within a round"},
          .copies_parts = {"the copies differ within a round"},
          .same_bits = {"the mean of the copies depends on their number"},
          .spares = {"the copies that are left go on from the newest checkpoint"}};
}

LocalSgd::LocalSgd(const StrategyParts& parts)
    : Rounds(parts, parts.setting.options.local_after),
      policy_(parts.setting.options.sync_optimizer == "average" ? OptimizerState::averaged
              : parts.setting.options.sync_optimizer == "reset" ? OptimizerState::reset
                                                                : OptimizerState::kept),
      fragments_(copy().parameters(), parts.setting.options.fragments) {
  const auto& options = parts.setting.options;
  if (is_partial(options)) {
    partial_ = std::make_unique<PartExchange>(copy(), parts.data, parts.tensor,
                                              parse_exchange_type(options.exchange_type));
  } else if (has_no_outer(options)) {
    return;
  }
  if (options.overlap_steps > 0) late_ = std::make_unique<LateParts>(parts, *partial_, options.overlap_steps);
  // A rate of 1 without momentum takes the mean, and keeps what was agreed on.
  const OuterUpdate::Config plain{.learning_rate = 1, .momentum = 0};
  const OuterUpdate::Config chosen{.learning_rate = options.outer_learning_rate,
                                   .momentum = options.outer_momentum};
  outer_ = std::make_unique<OuterUpdate>(has_no_outer(options) ? plain : chosen, copy().values());
  if (stays_apart()) own_ = at::empty_like(copy().values());
  begin_with_agreed();
}

/// The model has values that all copies agree on.
void LocalSgd::begin_with_agreed() {
  const at::NoGradGuard no_grad;
  if (outer_ != nullptr) outer_->begin(copy().values());
  if (!stays_apart()) return;
  own_.copy_(copy().values());
  holds_ = Holds::agreed;
}

void LocalSgd::begin_own_step(bool first) {
  // Another strategy may have left the state that was read; a round begins without any.
  const bool has_read_state = std::exchange(has_read_state_, false);
  if ((first || has_read_state) && forgets_optimizer()) copy().reset_optimizer();
  if (first) {
    if (outer_ != nullptr) outer_->begin(copy().values());
  } else if (holds_ == Holds::agreed) {
    const at::NoGradGuard no_grad;
    copy().values().copy_(own_);
    copy().replaced();
  }
  holds_ = Holds::own;
  if (late_ != nullptr) late_->count_step();
}

std::int64_t LocalSgd::update_number(std::int64_t step) {
  return forgets_optimizer() ? ++updates_ : Rounds::update_number(step);
}

void LocalSgd::exchange_within(std::int64_t step, std::int64_t steps, double weight) {
  if (partial_ != nullptr) exchange_fragments(fragments_.due_by(step, steps), {.value = weight});
}

/// Those from next_ to `end`, which all copies have come to, after those that were sent earlier and are due.
void LocalSgd::exchange_fragments(int end, PartExchange::Weight weight) {
  if (late_ == nullptr && next_ >= end) return;
  while (late_ != nullptr && late_->is_due()) take_first();
  for (; next_ < end; ++next_) {
    const auto& part = fragments_.part(next_);
    if (late_ != nullptr) {
      while (late_->has(part)) take_first();
      late_->send(part, copy().values(), outer_->agreed(), weight);
    } else {
      partial_->average(part, outer_->agreed(), weight);
      outer_->apply(copy().values(), part);
    }
  }
  // Stages hold different numbers of late parts, and may have none of a fragment: each tells the others once.
  copy().replaced();
}

/// The late part that was sent first arrives.
void LocalSgd::take_first() {
  const at::NoGradGuard no_grad;
  auto [part, mean, steps] = late_->take();
  outer_->apply(mean, part);
  auto own = copy().values().narrow(0, part.begin, part.size());
  const auto agreed = mean.narrow(0, part.begin, part.size());
  steps > 0 ? own.lerp_(agreed, kOfAgreed) : own.copy_(agreed);
}

void LocalSgd::arrive() {
  if (late_ == nullptr) return;
  while (!late_->empty()) take_first();
  copy().replaced();
}

void LocalSgd::exchange(double share) {
  // These first: they would wait for parts that are on their way.
  if (policy_ == OptimizerState::averaged) copy().average_optimizer(share);
  if (forgets_optimizer()) copy().reset_optimizer();
  updates_ = 0;
  if (partial_ != nullptr) {
    copy().average_buffers(share);
    exchange_fragments(fragments_.count(), {.value = share, .is_share = true});
    next_ = 0;
  } else {
    copy().average(share);
    if (outer_ != nullptr) {
      outer_->apply(copy().values());
      copy().replaced();
    }
  }
}

/// Where the copies have agreed on everything they hold the agreed model already.
void LocalSgd::synchronise() {
  if (late_ != nullptr) late_->prepare_state();
  if (!stays_apart() || holds_ == Holds::agreed) return;
  const at::NoGradGuard no_grad;
  own_.copy_(copy().values());
  if (holds_ == Holds::common) return;
  copy().values().copy_(outer_->agreed());
  copy().replaced();
  holds_ = Holds::agreed;
}

StateView LocalSgd::state() {
  const StateTensor::Owner mine{
      .copy = StateTensor::Owner::Copy{.index = parts().data.rank(), .count = parts().data.size()}};
  const bool keeps = policy_ == OptimizerState::kept;
  std::vector<StateView::Flat> flat;
  for (const auto& moments : copy().optimizer().state())
    flat.push_back({moments.name, moments.value, keeps ? mine : StateTensor::Owner{}});
  if (!has_no_outer(parts().setting.options)) flat.push_back({"outer_momentum", outer_->momentum()});
  if (stays_apart()) flat.push_back({"copy", own_, mine});
  if (late_ != nullptr) {
    for (auto& late : late_->state()) flat.push_back(std::move(late));
  }
  return {copy().parameters(), parts().model, std::move(flat), period_state()};
}

void LocalSgd::adopt_weights() {
  copy().adopt_weights();
  if (late_ != nullptr) late_->forget();
  begin_with_agreed();
}

void LocalSgd::adopt_optimizer() {
  has_read_state_ = true;
  if (late_ != nullptr) late_->adopt_state();
  parts().data.barrier().wait();
}

void LocalSgd::compare_copies(std::int64_t number) {
  const bool apart = holds_ == Holds::own && stays_apart();
  require_same_copies(parts().data, parts().world, parts().model, apart ? outer_->agreed() : copy().values(),
                      number);
}

}  // namespace dtrain::parallel
