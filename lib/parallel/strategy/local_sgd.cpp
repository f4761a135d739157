#include "parallel/strategy/local_sgd.hpp"

#include "parallel/agreement.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {
namespace {

/// Whether an outer update leaves the average as it is.
bool has_no_outer(const StrategyOptions& options) {
  return options.outer_optimizer == "none" ||
         (options.outer_learning_rate == 1.0 && options.outer_momentum == 0.0);
}

/// A mean of the weights after each step: with sgd it is what the mean gradient gives, and so ddp is run,
/// with its bits. Adam's moments of single copies would give another step; ddp's is taken for them as well.
bool is_lock_step(const StrategyOptions& options) {
  return options.sync_period == "1" && has_no_outer(options) && options.sync_optimizer != "reset";
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
                      "outer-learning-rate", "outer-momentum"},
          .blocks = [](const StrategyOptions& options) { return has_no_outer(options) ? 0 : 2; },
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
                                                                : OptimizerState::kept) {
  const auto& options = parts.setting.options;
  if (has_no_outer(options)) return;
  outer_ = std::make_unique<OuterUpdate>(
      OuterUpdate::Config{.learning_rate = options.outer_learning_rate, .momentum = options.outer_momentum},
      copy().values());
  outer_->begin(copy().values());
}

void LocalSgd::begin_own_step(bool first) {
  if (!first) return;
  if (outer_ != nullptr) outer_->begin(copy().values());
  if (policy_ == OptimizerState::reset) copy().reset_optimizer();
}

std::int64_t LocalSgd::update_number(std::int64_t step) {
  return policy_ == OptimizerState::reset ? ++updates_ : step;
}

void LocalSgd::exchange(double share) {
  copy().average(share);
  if (outer_ != nullptr) {
    outer_->apply(copy().values());
    copy().replaced();
  }
  if (policy_ == OptimizerState::averaged) copy().average_optimizer(share);
  if (policy_ == OptimizerState::reset) copy().reset_optimizer();
  updates_ = 0;
}

StateView LocalSgd::state() {
  std::vector<StateView::Flat> flat;
  for (const auto& moments : copy().optimizer().state()) {
    flat.push_back({moments.name, moments.value});
    if (policy_ == OptimizerState::kept)
      flat.back().owner.copy = {.index = parts().data.rank(), .count = parts().data.size()};
  }
  if (outer_ != nullptr) flat.push_back({"outer_momentum", outer_->momentum()});
  return {copy().parameters(), parts().model, std::move(flat), period_state()};
}

void LocalSgd::adopt_weights() {
  copy().adopt_weights();
  if (outer_ != nullptr) outer_->begin(copy().values());
}

void LocalSgd::compare_copies(std::int64_t number) {
  require_same_copies(parts().data, parts().world, parts().model, copy().values(), number);
}

}  // namespace dtrain::parallel
