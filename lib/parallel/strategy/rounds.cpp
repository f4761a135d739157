#include "parallel/strategy/rounds.hpp"

#include <fmt/format.h>

#include <cmath>

#include "optim/schedule.hpp"

namespace dtrain::parallel {

Rounds::Rounds(const StrategyParts& parts, std::int64_t lock_step)
    : parts_(parts),
      lock_step_(lock_step),
      copy_(parts),
      control_(parts.world),
      period_(parts.setting.options.sync_period) {}

StepOutcome Rounds::step(const StepPlan& plan, SampleSource& samples) {
  StepOutcome outcome;
  if (plan.number <= lock_step_) {
    step_together(plan, samples, outcome);
  } else {
    step_alone(plan, samples, outcome);
  }
  return outcome;
}

void Rounds::step_together(const StepPlan& plan, SampleSource& samples, StepOutcome& outcome) {
  begin_common_step();
  outcome.own = copy_.compute(plan, samples, LocalCopy::Sums::of_all).own;
  const auto agreed = control_.agree(outcome.own, parts_.requests ? parts_.requests() : StepRequests());
  outcome.total = agreed.totals;
  outcome.requests = agreed.requests;
  const auto& total = outcome.total;
  if (total.non_finite > 0 || !std::isfinite(total.loss)) {
    spoiled_.keep(plan.number, copy_.gradients());
    spoiled_.report(parts_, copy_, total);
  }
  if (!(total.weight > 0)) return;  // no sample counted
  outcome.gradient_norm = std::sqrt(total.gradient_squares) / total.weight;
  update(outcome.gradient_norm, total.weight, plan, scaler_.updates(plan.number));
}

void Rounds::step_alone(const StepPlan& plan, SampleSource& samples, StepOutcome& outcome) {
  begin_own_step(plan.number == lock_step_ + 1);
  const auto pass = copy_.compute(plan, samples, LocalCopy::Sums::of_copy);
  outcome.own = pass.own;
  outcome.agreed = false;
  if (pass.weight > 0) outcome.gradient_norm = std::sqrt(pass.squares) / pass.weight;
  const bool finite = pass.non_finite == 0 && std::isfinite(pass.loss);
  if (!finite && !spoiled_.found()) spoiled_.keep(plan.number, copy_.gradients().clone());
  if (!spoiled_.found() && pass.weight > 0)
    update(outcome.gradient_norm, pass.weight, plan, update_number(plan.number));
  round_.add_samples(pass.own);
  round_.non_finite += pass.own.non_finite;
  round_weight_ += pass.weight;
  ++steps_;
  if (steps_ >= period_.steps() || plan.pauses) {
    end_round(plan.number, outcome);
    if (plan.pauses) arrive();
  } else {
    exchange_within(steps_, period_.steps(), round_weight_);
  }
}

void Rounds::update(double norm, double weight, const StepPlan& plan, std::int64_t number) {
  const double clip = optim::clip_coefficient(norm, parts_.grad_clip);
  copy_.update(clip / weight, plan.learning_rate, number);
}

/// `number`: of its last step.
void Rounds::end_round(std::int64_t number, StepOutcome& outcome) {
  const auto agreed = control_.agree(round_, parts_.requests ? parts_.requests() : StepRequests());
  outcome.total = agreed.totals;
  outcome.requests = agreed.requests;
  outcome.agreed = true;
  const auto& total = outcome.total;
  if (total.non_finite > 0 || !std::isfinite(total.loss)) spoiled_.report(parts_, copy_, total);
  exchange(total.weight > 0 ? round_weight_ / total.weight : 1.0 / parts_.data.size());
  if (forgets_optimizer()) scaler_.go_on_from({.left_out = number});
  const auto before = period_.steps();
  if (period_.round_done(total.loss, total.weight, steps_) && parts_.tell)
    parts_.tell("sync_period", fmt::format("{} steps, was {}", period_.steps(), before));
  round_ = {};
  round_weight_ = 0;
  steps_ = 0;
}

std::vector<StateTensor> Rounds::period_state() const {
  if (!period_.adapts()) return {};
  return {{.group = std::string(StateTensor::kOptimizer) + "sync_period",
           .name = "state",
           .value = period_.state(),
           .slice = nullptr,
           .owner = {.pipe = 0}}};
}

}  // namespace dtrain::parallel
