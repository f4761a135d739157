#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/step/step_control.hpp"
#include "parallel/strategy/local_copy.hpp"
#include "parallel/strategy/servers/server_client.hpp"
#include "parallel/strategy/servers/server_messages.hpp"
#include "parallel/strategy/servers/server_roles.hpp"
#include "parallel/strategy/servers/serving.hpp"
#include "parallel/strategy/spoiled_gradient.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// Copies of the model, each on one rank, that take micro-batches at their own pace and wait for no other
/// copy: what they have in common is on servers (ServerRoles). Where the run uses the agreed model (an epoch
/// ends, the model is validated) all ranks meet. One message brings together losses, requests, and whether a
/// number was not finite; what the servers have goes to all ranks; running statistics become the mean of the
/// copies, each counting by its samples. A loss or gradient that is not finite is not applied, and ends the
/// run there.
class ServedCopies : public Strategy {
 public:
  std::optional<WorkUnit> take_work(const WorkRange& steps) final;
  StepOutcome step(const StepPlan& plan, SampleSource& samples) final;
  void roll_back(std::int64_t /*number*/) override {}
  optim::LossScaler& scaler() override { return scaler_; }

 protected:
  /// Collective: as LocalCopy. The derived class calls adopt_weights().
  ServedCopies(const StrategyParts& parts, Serving::Rule rule);

  /// How far ahead of the slowest copy another one may be, in steps, of which there are so many.
  virtual int staleness(std::int64_t steps) const = 0;
  /// The next micro-batch of this copy; empty: it has told the servers that it is done.
  virtual std::optional<WorkUnit> draw() = 0;
  /// What becomes of a gradient. `pass`: what it came to; `norm`: of the mean; `usable`: finite, of samples.
  virtual void use(const StepPlan& plan, const LocalCopy::Pass& pass, double norm, bool usable) = 0;
  /// All ranks have come, no copy computes: makes what the servers have the agreed model. `late`: as
  /// Serving::finish(). Collective.
  virtual void agree(std::vector<std::int64_t> late, StepOutcome& outcome) = 0;

  const StrategyParts& parts() const { return parts_; }
  const ServerRoles& roles() const { return roles_; }
  LocalCopy& copy() { return copy_; }
  Serving& serving() { return serving_; }
  ServerClient& client() { return client_; }
  const WorkUnit& unit() const { return *unit_; }  ///< In hand.

 private:
  void step_alone(const StepPlan& plan, SampleSource& samples, StepOutcome& outcome);
  void meet(StepOutcome& outcome);

  StrategyParts parts_;
  ServerRoles roles_;
  ServerLines lines_;
  LocalCopy copy_;
  StepControl control_;
  optim::LossScaler scaler_{optim::LossScaler::Use::none};
  Serving serving_;
  ServerClient client_;
  std::optional<WorkUnit> unit_;
  StepTotals own_;  // since the ranks last met
  double own_weight_ = 0;
  SpoiledGradient spoiled_;
};

/// Whether a copy can be served in a setting. Not for a run in lock-step.
Answer can_be_served(const Setting& setting);

}  // namespace dtrain::parallel
