#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/strategy/federated/update_sum.hpp"
#include "parallel/strategy/local_copy.hpp"
#include "parallel/strategy/private_training.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// What differential privacy changes in a round of `fedavg`: one of RecordPrivacy, ClientPrivacy and
/// SecurePrivacy. Each hook stands at the place in the round from which FedAvg and its RoundSum call it.
class FederatedPrivacy {
 public:
  FederatedPrivacy() = default;
  virtual ~FederatedPrivacy() = default;
  FederatedPrivacy(const FederatedPrivacy&) = delete;
  FederatedPrivacy& operator=(const FederatedPrivacy&) = delete;

  static Answer can(const Setting& setting);
  /// Null: the run is not private. `parts` and `copy` are borrowed. Collective.
  static std::unique_ptr<FederatedPrivacy> make(const StrategyParts& parts, LocalCopy& copy);

  virtual PrivateTraining& training() = 0;  ///< What the loop asks.

  /// In the place of LocalCopy::compute(), for a local step of `client`: leaves its gradient, the sum over a
  /// batch of LocalCopy::Pass::weight samples, in the copy. Nothing: the copy computes as ever.
  virtual std::optional<LocalCopy::Pass> compute(const StepPlan& /*plan*/, int /*client*/,
                                                 SampleSource& /*samples*/) {
    return std::nullopt;
  }

  // Of a plain sum.
  /// A client's `update` [n] before it is added: may be changed. Returns how much it counts, where it would
  /// count `share`.
  virtual double hand_in(at::Tensor& /*update*/, double share, UpdateSum& /*sum*/) { return share; }
  /// After the last client of this rank, before the sum is exchanged, and when all ranks have it.
  virtual void add_noise(std::int64_t /*round*/, UpdateSum& /*sum*/) {}
  virtual void take_sum(const UpdateSum& /*sum*/) {}
  /// Whether the sum is divided by a public number already, so that it is an update also without clients.
  virtual bool sum_is_mean() const { return false; }

  /// With the update of the global model. `released`: there was a sum.
  virtual void commit(const StepPlan& plan, bool released) = 0;
  /// The ledger, as it will be when a sum of this round was released.
  virtual std::string ledger_after(const RoundPlan& round) const = 0;

  /// What a checkpoint has of it, and what follows when its values were replaced.
  virtual std::vector<StateTensor> state() = 0;
  virtual void adopt() = 0;
};

/// Makes `update`, float or double, no longer than `limit` and returns the norm that it had. Elements are
/// rounded to their type, by which the result may be longer by a relative 2^-23. What is not a number stays
/// so.
double clip_to(at::Tensor& update, double limit);

/// Clients that are sampled for a round.
std::int64_t clients_of_round(const Setting& setting);

}  // namespace dtrain::parallel
