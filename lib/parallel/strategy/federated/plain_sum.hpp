#pragma once

#include <cstdint>

#include "parallel/strategy/federated/federated_privacy.hpp"
#include "parallel/strategy/federated/round_sum.hpp"
#include "parallel/strategy/federated/update_sum.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// The sum of a round's updates, weighted by samples or as differential privacy weighs them. Each rank adds
/// the clients that it simulates, and all ranks add up.
class PlainSum final : public RoundSum {
 public:
  /// Numbers of an update.
  struct Sizes {
    std::int64_t parameters = 0;
    std::int64_t buffers = 0;
    std::int64_t control = 0;
  };
  /// `privacy` may be null. All is borrowed. Collective.
  PlainSum(const StrategyParts& parts, const Sizes& sizes, FederatedPrivacy* privacy);

  void begin(const StepPlan& plan) override;
  bool hand_in(const ClientUpdate& update, StepTotals& own) override;
  Result finish(at::Tensor& mean) override;
  void take_buffers(at::Tensor& change) const override;
  void take_control(at::Tensor& change) const override;

 private:
  Sizes sizes_;
  bool normalises_;  // FedNova
  FederatedPrivacy* privacy_;
  UpdateSum sum_;  // parameters, buffers, control
  std::int64_t round_ = 0;
  std::int64_t samples_ = 0;  // of all clients that were to hand in
  int of_ = 1;                // clients that there are
  double whole_ = 1;          // what makes a mean of the sum
};

}  // namespace dtrain::parallel
