#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/servers/served_copies.hpp"

namespace dtrain::parallel {

/// `easgd` without rounds: servers keep the centre, a part each. A copy x makes a step of its own with each
/// micro-batch that it takes. After every `--sync-period` of them it hands x to the servers and gets the
/// centre c from before: x moves by a (c - x) and c by a (x - c), a being the elasticity, whatever other
/// copies do meanwhile. With sgd's momentum in the copies it is asynchronous EAMSGD.
///
/// Where the run uses the agreed model, a copy that has made steps since its last exchange makes one more, so
/// that the centre has learnt from all of them. The centre is evaluated and saved, and of each copy
/// parameters and optimizer state; on another number of copies all go on from their mean.
///
/// A micro-batch moves its copy by the learning rate times the micro-batch's share of a step times the number
/// of copies: with a micro-batch for each copy as far as a step of a round.
/// Source: Zhang, Choromanska and LeCun, "Deep learning with Elastic Averaging SGD", NIPS 2015, algorithm 1.
class AsynchronousEasgd final : public ServedCopies {
 public:
  static Abilities can(const Setting& setting);

  /// Collective: as LocalCopy.
  explicit AsynchronousEasgd(const StrategyParts& parts);

  void synchronise() override {}  // the model has the centre where the ranks have met
  StateView state() override;
  void adopt_weights() override;
  void adopt_optimizer() override { parts().data.barrier().wait(); }
  void compare_copies(std::int64_t number) override;

 private:
  int staleness(std::int64_t steps) const override { return static_cast<int>(steps); }  // no bound
  std::optional<WorkUnit> draw() override;
  void use(const StepPlan& plan, const LocalCopy::Pass& pass, double norm, bool usable) override;
  void agree(std::vector<std::int64_t> late, StepOutcome& outcome) override;
  void exchange();

  std::int64_t period_;
  double elasticity_;
  at::Tensor centre_;          // [n], as last seen
  at::Tensor own_;             // [n], this copy's parameters while the model has the centre's
  bool shows_centre_ = false;  // the model's parameters are the centre's
  std::int64_t steps_ = 0;     // since the last exchange
  std::int64_t updates_ = 0;   // of this copy, over the whole run; 0: not known yet
};

}  // namespace dtrain::parallel
