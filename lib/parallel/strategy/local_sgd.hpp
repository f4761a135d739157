#pragma once

#include <memory>

#include "parallel/strategy/outer_update.hpp"
#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/rounds.hpp"

namespace dtrain::parallel {

/// `local_sgd`: after each round all copies take the mean of their parameters and buffers, in which a copy
/// counts by the weight of the samples that it has used; an outer update may follow. The agreed model is what
/// all copies begin the next round with.
///
/// The optimizer's state of a copy is kept, averaged like the parameters, or set to zero
/// (StrategyOptions::sync_optimizer). Of a state that is kept a checkpoint has each copy's; on another number
/// of copies all go on with their mean. Sources: Stich, "Local SGD Converges Fast and Communicates Little",
/// ICLR 2019; with steps in lock-step before, Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR
/// 2020; OuterUpdate.
class LocalSgd final : public Rounds {
 public:
  static Abilities can(const Setting& setting);

  /// Collective: as LocalCopy.
  explicit LocalSgd(const StrategyParts& parts);

  void synchronise() override {}  // the copies have agreed
  StateView state() override;
  void adopt_weights() override;
  void adopt_optimizer() override { parts().data.barrier().wait(); }
  void compare_copies(std::int64_t number) override;

 private:
  enum class OptimizerState { kept, averaged, reset };
  void begin_own_step(bool first) override;
  std::int64_t update_number(std::int64_t step) override;
  void exchange(double share) override;

  OptimizerState policy_;
  std::unique_ptr<OuterUpdate> outer_;  // null: there is none
  std::int64_t updates_ = 0;            // since the optimizer's state was reset
};

StrategyEntry local_sgd();

}  // namespace dtrain::parallel
