// A strategy on trial: each copy of the model makes steps of its own, and every few steps all take the
// average of their parameters. A program that is linked with this file has it beside the others.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"
#include "parallel/step/step_control.hpp"
#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kSteps = 4;  // between averages

class AverageParameters final : public Strategy, private LocalSums {
 public:
  explicit AverageParameters(const StrategyParts& parts)
      : parts_(parts),
        parameters_(parts.model, parts.dtype),
        optimizer_(optim::make_optimizer(parts.setting.optimizer, parameters_.size(),
                                         parameters_.values().options())),
        gradients_(at::zeros_like(parameters_.values())),
        control_(parts.world) {
    adopt_weights();
  }

  StepOutcome step(const StepPlan& plan, SampleSource& samples) override {
    StepOutcome outcome;
    for (const auto& [index, sums, count] : parts_.engine.compute(plan, samples, *this, 1.0))
      outcome.own.add(sums, count);
    const at::NoGradGuard no_grad;
    gradients_.zero_();
    for (const auto& entry : parameters_.entries()) {
      const auto& gradient = entry.parameter->value.grad();
      if (gradient.defined()) FlatParameters::view(gradients_, entry).copy_(gradient);
    }
    if (outcome.own.weight > 0) {
      optimizer_->step(parameters_.values(), gradients_, 1 / outcome.own.weight, plan.learning_rate,
                       plan.number);
    }
    if (plan.number % kSteps == 0) synchronise();
    const auto agreed = control_.agree(outcome.own, parts_.requests());
    outcome.total = agreed.totals;
    outcome.requests = agreed.requests;
    return outcome;
  }

  void synchronise() override {
    parts_.data.all_reduce(buffer_of(parameters_.values()), comm::ReduceOp::sum).wait();
    parameters_.values().div_(parts_.data.size());
  }
  StateView state() override { return {parameters_, parts_.model, *optimizer_}; }
  void adopt_weights() override { broadcast_parameters(parts_.data, parameters_.values()); }
  void adopt_optimizer() override {}
  void roll_back(std::int64_t /*number*/) override {}
  void compare_copies(std::int64_t number) override {
    synchronise();
    require_same_copies(parts_.data, parts_.world, parts_.model, parameters_.values(), number);
  }
  optim::LossScaler& scaler() override { return scaler_; }

 private:
  void begin_step(int /*micro_batches*/) override {
    for (const auto& entry : parameters_.entries()) entry.parameter->value.mutable_grad().reset();
  }
  void taken_back(int /*index*/) override {}

  StrategyParts parts_;
  FlatParameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  at::Tensor gradients_;
  StepControl control_;
  optim::LossScaler scaler_{optim::LossScaler::Use::none};
};

Answer runs(const Setting& setting) {
  if (setting.mesh.model_ranks() > 1) return {"averages whole copies, and a copy is cut over several ranks"};
  if (setting.half) return {"has no scaled loss"};
  if (setting.optimizer.state_count() > 0) return {"keeps no optimizer state, and this optimizer has some"};
  if (setting.model != nullptr && !setting.model->buffers().empty())
    return {"averages no running statistics"};
  return {};
}

Abilities can(const Setting& setting) {
  const Answer no{"is on trial"};
  return {.runs = runs(setting),
          .replays_graphs = no,
          .updates_by_rows = no,
          .rolls_back = no,
          .copies_parts = no,
          .same_bits = {"depends on the number of copies"},
          .spares = no};
}

StrategyEntry average_parameters() {
  return {.name = "average_parameters",
          .rule = "copies average their parameters every 4 steps",
          .can = can,
          .make = [](const StrategyParts& parts) -> std::unique_ptr<Strategy> {
            return std::make_unique<AverageParameters>(parts);
          }};
}

}  // namespace

const std::vector<StrategyEntry>& strategies() {
  static const std::vector<StrategyEntry> kStrategies = {synchronous(), average_parameters()};
  return kStrategies;
}

}  // namespace dtrain::parallel
