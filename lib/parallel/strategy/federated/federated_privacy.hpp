#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "parallel/strategy/federated/update_sum.hpp"
#include "parallel/strategy/local_copy.hpp"
#include "parallel/strategy/private_training.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// What differential privacy changes in a round of `fedavg`: one of RecordPrivacy and ClientPrivacy. Each
/// hook stands at the place in the round from which FedAvg calls it.
class FederatedPrivacy : public PrivateTraining {
 public:
  static Answer can(const Setting& setting);
  /// Null: the run is not private. `parts` and `copy` are borrowed. Collective.
  static std::unique_ptr<FederatedPrivacy> make(const StrategyParts& parts, LocalCopy& copy);

  /// In the place of LocalCopy::compute(), for a local step of `client`: leaves its gradient, the sum over a
  /// batch of LocalCopy::Pass::weight samples, in the copy. Nothing: the copy computes as ever.
  virtual std::optional<LocalCopy::Pass> compute(const StepPlan& /*plan*/, int /*client*/,
                                                 SampleSource& /*samples*/) {
    return std::nullopt;
  }

  /// A client's `update` [n] before it is added to the sum: may be changed. Returns how much it counts, where
  /// it would count `share`.
  virtual double hand_in(at::Tensor& /*update*/, double share, UpdateSum& /*sum*/) { return share; }

  /// After the last client of this rank, before the sum is exchanged.
  virtual void add_noise(std::int64_t /*round*/, UpdateSum& /*sum*/) {}

  /// Whether the sum is divided by a public number already, so that it is an update also without clients.
  virtual bool sum_is_mean() const { return false; }

  /// With the update of the global model: all ranks have the sum.
  virtual void commit(const StepPlan& plan, const UpdateSum& sum) = 0;

  /// What a checkpoint has of it, and what follows when its values were replaced.
  virtual std::vector<StateTensor> state() = 0;
  virtual void adopt() = 0;
};

}  // namespace dtrain::parallel
