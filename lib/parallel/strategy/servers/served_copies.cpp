#include "parallel/strategy/servers/served_copies.hpp"

#include <cmath>
#include <utility>

namespace dtrain::parallel {

Answer can_be_served(const Setting& setting) {
  if (setting.half == at::kHalf) return {"in fp16 each copy would scale its loss differently"};
  if (setting.mesh.pipe > 1 || setting.mesh.tensor > 1)
    return {"a copy that fetches parameters has to be one rank: use a mesh of data alone"};
  if (setting.on_device) return {"servers update in the CPU's memory"};
  return {};
}

ServedCopies::ServedCopies(const StrategyParts& parts, Serving::Rule rule)
    : parts_(parts),
      roles_(parts.data.size(), parts.setting.options.servers),
      lines_(parts.data, roles_.beside() ? parts.world : parts.data),
      copy_(parts),
      control_(parts.world),
      serving_(parts, roles_, lines_, copy_.values(), std::move(rule)),
      client_(lines_, roles_, parts.clock) {}

std::optional<WorkUnit> ServedCopies::take_work(const WorkRange& steps) {
  // Each micro-batch is one update: the number of those before is the same whichever copy computed them.
  serving_.begin(steps, staleness(steps.last - steps.first + 1),
                 (scaler_.updates(steps.first) - 1) * parts_.setting.micro_batches);
  if (!roles_.computes(parts_.data.rank())) return std::nullopt;
  unit_ = draw();
  return unit_;
}

StepOutcome ServedCopies::step(const StepPlan& plan, SampleSource& samples) {
  StepOutcome outcome;
  if (plan.pauses) {
    meet(outcome);
  } else {
    step_alone(plan, samples, outcome);
  }
  return outcome;
}

void ServedCopies::step_alone(const StepPlan& plan, SampleSource& samples, StepOutcome& outcome) {
  outcome.agreed = false;
  const auto pass = copy_.compute(plan, samples, LocalCopy::Sums::of_copy);
  outcome.own = pass.own;
  own_.add_samples(pass.own);
  own_.non_finite += pass.own.non_finite;
  own_weight_ += pass.weight;
  if (pass.weight > 0) outcome.gradient_norm = std::sqrt(pass.squares) / pass.weight;
  const bool finite = pass.non_finite == 0 && std::isfinite(pass.loss);
  if (!finite && !spoiled_.found()) spoiled_.keep(plan.number, copy_.gradients().clone());
  // A copy that has found such a gradient changes nothing more: the run ends where the ranks meet.
  use(plan, pass, outcome.gradient_norm, !spoiled_.found() && pass.weight > 0);
  unit_.reset();
}

/// The servers come here when all copies are done.
void ServedCopies::meet(StepOutcome& outcome) {
  auto late = serving_.finish();
  const auto agreed = control_.agree(own_, parts_.requests ? parts_.requests() : StepRequests());
  outcome.total = agreed.totals;
  outcome.requests = agreed.requests;
  const auto& total = outcome.total;
  if (total.non_finite > 0 || !std::isfinite(total.loss)) spoiled_.report(parts_, copy_, total);
  agree(std::move(late), outcome);
  copy_.average_buffers(total.weight > 0 ? own_weight_ / total.weight : 1.0 / parts_.data.size());
  own_ = {};
  own_weight_ = 0;
}

}  // namespace dtrain::parallel
