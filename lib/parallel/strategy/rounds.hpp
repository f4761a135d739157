#pragma once

#include <cstdint>
#include <vector>

#include "parallel/step/step_control.hpp"
#include "parallel/strategy/local_copy.hpp"
#include "parallel/strategy/spoiled_gradient.hpp"
#include "parallel/strategy/strategy.hpp"
#include "parallel/strategy/sync_period.hpp"

namespace dtrain::parallel {

/// Copies of the model that make steps of their own for a round, and exchange something at its end. A round
/// has SyncPeriod::steps() steps, fewer where the run uses the agreed model earlier (StepPlan::pauses). All
/// copies make the same number of steps, also those that have no samples in some of them.
///
/// Within a round no rank waits for another copy. The end of a round is the point of agreement: one message
/// brings together losses, requests, and whether a number was not finite; then the copies exchange. A loss or
/// gradient that is not finite stops the updates of its copy, and ends the run when the round ends.
class Rounds : public Strategy {
 public:
  StepOutcome step(const StepPlan& plan, SampleSource& samples) final;
  void roll_back(std::int64_t /*number*/) override {}
  optim::LossScaler& scaler() override { return scaler_; }

 protected:
  /// `lock_step`: the first steps of the run in which all copies make the same update.
  Rounds(const StrategyParts& parts, std::int64_t lock_step);

  /// Before a step in lock-step.
  virtual void begin_common_step() {}
  /// Before a step of a copy's own. `first`: the step before it, if there was one, was in lock-step.
  virtual void begin_own_step(bool first) = 0;
  /// The number of the update in step `step`, from 1, for the optimizer: steps may count those of another
  /// run, whose optimizer's state this one has not.
  virtual std::int64_t update_number(std::int64_t step) { return scaler_.updates(step); }
  /// After a step that does not end its round: the `step`th, from 1, of `steps`. `weight`: of the samples
  /// that this copy has used in the round. Collective over the data axis, and over the copy.
  virtual void exchange_within(std::int64_t /*step*/, std::int64_t /*steps*/, double /*weight*/) {}
  /// The round is over: what the copies exchange. `share`: of this copy in the weight of all samples of the
  /// round. Collective.
  virtual void exchange(double share) = 0;
  /// Whether exchange() sets the optimizer's state to zero: its updates count from there, and a checkpoint
  /// says so.
  virtual bool forgets_optimizer() const { return false; }
  /// After exchange(), where the run uses the agreed model next: what is still on its way between the copies
  /// arrives. Collective.
  virtual void arrive() {}

  /// Where the period stands, to be saved and restored.
  std::vector<StateTensor> period_state() const;
  const StrategyParts& parts() const { return parts_; }
  LocalCopy& copy() { return copy_; }

 private:
  void step_alone(const StepPlan& plan, SampleSource& samples, StepOutcome& outcome);
  void step_together(const StepPlan& plan, SampleSource& samples, StepOutcome& outcome);
  void end_round(std::int64_t number, StepOutcome& outcome);
  void update(double norm, double weight, const StepPlan& plan, std::int64_t number);

  StrategyParts parts_;
  std::int64_t lock_step_;
  LocalCopy copy_;
  StepControl control_;
  SyncPeriod period_;
  optim::LossScaler scaler_{optim::LossScaler::Use::none};
  StepTotals round_;         // of this rank
  double round_weight_ = 0;  // of this copy
  std::int64_t steps_ = 0;   // of the round so far
  SpoiledGradient spoiled_;
};

}  // namespace dtrain::parallel
