#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/servers/served_copies.hpp"

namespace dtrain::parallel {

/// `asgd`, asynchronous updates: servers keep the parameters and the optimizer's state, a part each. A copy
/// takes a micro-batch, fetches the parameters, computes a gradient and pushes it, without waiting for
/// another copy; servers apply it as it comes. `--staleness` bounds how far ahead a copy may be; with 0 the
/// ranks run ddp.
///
/// An update has a micro-batch's mean gradient, and of the learning rate the micro-batch's share of its step:
/// as many samples move the parameters as far as in ddp. Source: Dean et al., "Large scale distributed deep
/// networks", NIPS 2012; Ho et al. 2013 for the bound; Zhang et al., "Staleness-aware async-SGD", IJCAI 2016,
/// for the divided rate.
class Asgd final : public ServedCopies {
 public:
  static Abilities can(const Setting& setting);

  /// Collective: as LocalCopy.
  explicit Asgd(const StrategyParts& parts);

  void synchronise() override {}  // the ranks have met
  StateView state() override { return {copy().parameters(), parts().model, copy().optimizer()}; }
  void adopt_weights() override;
  void adopt_optimizer() override { parts().data.barrier().wait(); }
  void compare_copies(std::int64_t number) override;

 private:
  int staleness(std::int64_t /*steps*/) const override { return parts().setting.options.staleness; }
  std::optional<WorkUnit> draw() override;
  void use(const StepPlan& plan, const LocalCopy::Pass& pass, double norm, bool usable) override;
  void agree(std::vector<std::int64_t> late, StepOutcome& outcome) override;
};

StrategyEntry asgd();

}  // namespace dtrain::parallel
