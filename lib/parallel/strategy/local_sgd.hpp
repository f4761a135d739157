#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "parallel/strategy/fragments.hpp"
#include "parallel/strategy/late_parts.hpp"
#include "parallel/strategy/outer_update.hpp"
#include "parallel/strategy/part_exchange.hpp"
#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/rounds.hpp"

namespace dtrain::parallel {

/// `local_sgd`: after each round all copies take the mean of their parameters and buffers, in which a copy
/// counts by the weight of the samples that it has used; an outer update may follow. The agreed model is what
/// all copies begin the next round with.
///
/// With StrategyOptions::fragments a part of the parameters is exchanged after every few steps, each part
/// once a round: the copies then differ at all times. The agreed model has the last agreed values of each
/// part, and a checkpoint has the parameters of each copy as well. What travels may have fewer bits
/// (PartExchange).
///
/// With StrategyOptions::overlap_steps a part travels while the copies make so many further steps
/// (LateParts). The outer update follows its arrival, and a copy takes the middle between what it has come to
/// and the agreed values. What is on its way arrives at once where the run uses the agreed model, or where
/// the part is due again, which happens in rounds that are shorter.
///
/// The optimizer's state of a copy is kept, averaged like the parameters, or set to zero
/// (StrategyOptions::sync_optimizer). Of a state that is kept a checkpoint has each copy's; on another number
/// of copies all go on with their mean. Sources: Stich, "Local SGD Converges Fast and Communicates Little",
/// ICLR 2019; with steps in lock-step before, Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR
/// 2020; OuterUpdate; Fragments.
class LocalSgd final : public Rounds {
 public:
  static Abilities can(const Setting& setting);

  /// Collective: as LocalCopy.
  explicit LocalSgd(const StrategyParts& parts);

  void synchronise() override;
  StateView state() override;
  void adopt_weights() override;
  void adopt_optimizer() override;
  void compare_copies(std::int64_t number) override;

 private:
  enum class OptimizerState { kept, averaged, reset };
  /// Whose values the model has: what all copies hold, this copy's, or the agreed ones beside own_.
  enum class Holds { common, own, agreed };
  bool stays_apart() const { return fragments_.count() > 1 || late_ != nullptr; }
  void begin_common_step() override { holds_ = Holds::common; }
  void begin_own_step(bool first) override;
  std::int64_t update_number(std::int64_t step) override;
  void exchange_within(std::int64_t step, std::int64_t steps, double weight) override;
  void exchange(double share) override;
  bool forgets_optimizer() const override { return policy_ == OptimizerState::reset; }
  void arrive() override;
  void exchange_fragments(int end, PartExchange::Weight weight);
  void take_first();
  void begin_with_agreed();

  OptimizerState policy_;
  std::unique_ptr<OuterUpdate> outer_;     // null: all copies take the mean of everything, as it is
  std::unique_ptr<PartExchange> partial_;  // null: everything is exchanged at once, in all bits
  std::unique_ptr<LateParts> late_;        // null: parts are waited for
  Fragments fragments_;
  int next_ = 0;    // fragment to be exchanged
  at::Tensor own_;  // [n], where the copies stay apart
  Holds holds_ = Holds::common;
  std::int64_t updates_ = 0;     // since the optimizer's state was reset
  bool has_read_state_ = false;  // of the optimizer, and no copy has made a step of its own since
};

StrategyEntry local_sgd();

}  // namespace dtrain::parallel
