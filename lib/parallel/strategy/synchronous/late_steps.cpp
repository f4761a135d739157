// Steps that the device decides on, and the CPU learns of one step later.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "parallel/gradients/non_finite.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {

/// Each rank must hold the whole gradient, by which its device decides, and the run never rolls a step back.
bool Synchronous::decides_late() const {
  const bool alone = parts_.pipe.size() == 1 && parts_.tensor.size() == 1;
  const bool whole = !gradients_->updates_parts() && gather_ == nullptr && layers_ == nullptr;
  return parts_.setting.fused_kernels && alone && whole && rows_ == nullptr && totals_ == nullptr &&
         undo_ == nullptr && adaptive_ == nullptr && optimizer_->takes_decisions() &&
         LateDecision::takes(gradients_->gradients());
}

/// Null where nothing is captured, or the CPU decides on the update.
std::unique_ptr<RepeatedWork> Synchronous::late_update() const {
  if (late_ == nullptr || parts_.capture == nullptr) return nullptr;
  return std::make_unique<RepeatedWork>(*parts_.capture, "the update", parts_.capture_news);
}

// The message has the weight of this step, which the CPU knows, and all that came of the last one.
void Synchronous::step_late(const StepPlan& plan, std::vector<MicroBatchLoss> losses, double loss_scale,
                            StepOutcome& outcome) {
  outcome.late = true;
  take_late(outcome);
  double weight = 0;
  for (const auto& loss : losses) weight += loss.sums.weight;
  const auto agreed =
      control_.agree(outcome.own, parts_.requests ? parts_.requests() : StepRequests(), weight);
  outcome.requests = agreed.requests;
  close_late(agreed.totals, outcome);
  const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
  const auto& gradients = gradients_->gradients();
  late_->begin(
      {.number = plan.number, .weight = agreed.next_weight * loss_scale, .learning_rate = plan.learning_rate},
      scaler_.updates(plan.number) - 1, std::move(losses), gradients.device());
  statistics_.take_in();
  const auto update = [&] {
    const at::Tensor& decision = late_->decide(gradients, parts_.grad_clip);
    optimizer_->step_as_decided(parameters_.values(), gradients, decision, gradients_->update_parts());
    statistics_.apply_as_decided(decision);
  };
  late_update_ != nullptr ? late_update_->run(statistics_.weights(), update) : update();
  if (writes_halves_) halves_->written();
  late_->end();
}

/// What the last step came to on this rank; nothing where that is known.
void Synchronous::take_late(StepOutcome& outcome) {
  taken_ = {};
  if (!late_->under_way()) return;
  const ScopedSpan span(parts_.sink, Phase::optimizer, "decision");
  taken_ = late_->take();
  add_up(taken_.losses, outcome.own);
  outcome.gradient_norm = taken_.decision.norm;
  outcome.own.non_finite = taken_.decision.applies != 0 ? 0 : 1;
}

/// `total`: of the last step, over all ranks.
void Synchronous::close_late(const StepTotals& total, StepOutcome& outcome) {
  outcome.total = total;
  const auto number = taken_.step.number;
  if (number == 0) return;
  const auto ranks = static_cast<double>(parts_.world.size());
  require(
      total.non_finite == 0 || total.non_finite == ranks,
      "some ranks have applied a step that others have left out, since their gradients differ",
      {.subject = fmt::format("step {}", number), .advice = "leave out --kernels fused, and report this"});
  const bool finite = total.non_finite == 0;
  outcome.left_out = scaler_.leaves_out(finite);
  if ((!finite && !outcome.left_out) || (finite && !std::isfinite(total.loss))) {
    report_non_finite(
        parts_.world,
        {parts_.model, parameters_, gradients_->gradients(), gradients_->own_parts(), nullptr, false}, number,
        total);
  }
  if (!std::isfinite(total.loss)) {
    outcome.own.leave_losses_out();
    outcome.total.leave_losses_out();
  }
}

std::optional<StepOutcome> Synchronous::settle() {
  if (late_ == nullptr || !late_->under_way()) return std::nullopt;
  StepOutcome outcome;
  outcome.late = true;
  take_late(outcome);
  close_late(control_.agree(outcome.own).totals, outcome);
  return outcome;
}

}  // namespace dtrain::parallel
