#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/step/step_control.hpp"
#include "parallel/strategy/federated/client_keeping.hpp"
#include "parallel/strategy/federated/federated_privacy.hpp"
#include "parallel/strategy/federated/round_sum.hpp"
#include "parallel/strategy/federated/server_update.hpp"
#include "parallel/strategy/local_copy.hpp"
#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// `fedavg`, federated averaging: a step of the run is a round. Each sampled client begins with the global
/// model and an optimizer without state, makes local steps with its own samples, and hands in what they have
/// changed. The server updates the global model, which is evaluated and saved, with the mean of these
/// updates, weighted by the clients' samples: ServerUpdate. A rank simulates its clients (StepPlan::round)
/// one after another; results have the same bits on any number of ranks.
///
/// SCAFFOLD corrects local gradients by ControlVariates; weights are averaged by samples, as with the other
/// rules. FedProx: a local loss has mu / 2 |w - global|^2 besides. FedNova: an update counts divided by its
/// local steps, and the mean times their mean, so that clients with many steps do not pull more than their
/// share; with momentum a step counts as often as it comes to act. Buffers are averaged like weights. Clients
/// that train alone (`local`) begin a round with the model they had after the last one; the global model, the
/// mean of theirs, does not come back to them. With `--secure-aggregation` the RoundSum is one of which the
/// server sees no update. Sources: McMahan et al., "Communication-Efficient Learning of Deep Networks from
/// Decentralized Data", AISTATS 2017; Li et al., "Federated Optimization in Heterogeneous Networks", MLSys
/// 2020; Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
/// NeurIPS 2020.
class FedAvg final : public Strategy {
 public:
  static Abilities can(const Setting& setting);

  /// Collective: as LocalCopy.
  explicit FedAvg(const StrategyParts& parts);

  /// Throws Error naming the round where an update is not finite; no rank has updated then.
  StepOutcome step(const StepPlan& plan, SampleSource& samples) override;
  void synchronise() override {}  // the model has the global weights between two rounds
  StateView state() override;
  void adopt_weights() override { copy_.adopt_weights(); }
  void adopt_optimizer() override;
  void roll_back(std::int64_t number) override;
  void compare_copies(std::int64_t number) override;
  optim::LossScaler& scaler() override { return scaler_; }
  ClientModels* client_models() override { return keeping_->models(); }
  PrivateTraining* privacy() override { return privacy_ != nullptr ? &privacy_->training() : nullptr; }

 private:
  /// What the global model is made of, copied.
  struct Kept {
    std::int64_t number = 0;  // the round it was kept for; 0: none
    at::Tensor values;
    std::vector<at::Tensor> buffers;
    std::vector<at::Tensor> moments;
    std::vector<at::Tensor> released;  // FederatedPrivacy::state()
  };
  std::vector<ServerUpdate::Moments> server_state() const;
  void keep_global(std::int64_t number);
  void restore(const Kept& kept);
  std::unique_ptr<RoundSum> make_sum();
  std::unique_ptr<ClientKeeping> make_keeping();
  bool train_client(const StepPlan& plan, const ClientWork& work, SampleSource& samples, StepTotals& totals,
                    double end_s);
  void local_step(const StepPlan& plan, const ClientWork& work, std::size_t k, SampleSource& samples,
                  StepTotals& totals);
  double correct_gradient(const LocalCopy::Pass& pass);
  void hand_in(const StepPlan& plan, const ClientWork& work, const StepTotals& totals, StepTotals& own);
  void train_and_hand_in(const StepPlan& plan, SampleSource& samples, StepTotals& own);
  double normaliser(std::size_t steps) const;
  RoundOutcome update_global(const StepPlan& plan, const RoundSum::Result& sum);

  StrategyParts parts_;
  FederatedOptions options_;
  LocalCopy copy_;
  StepControl control_;
  std::vector<models::Buffer*> buffers_;  // those that training changes
  ServerUpdate server_;
  std::unique_ptr<FederatedPrivacy> privacy_;  // null: nothing is kept from anybody
  std::unique_ptr<RoundSum> sum_;
  at::Tensor update_;  // [n], of a client, or their mean
  std::unique_ptr<ClientKeeping> keeping_;
  Kept global_;               // where the round under way began
  Kept before_;               // where the round applied last began, if it may have to be rolled back
  std::int64_t applied_ = 0;  // the round whose update was applied last
  optim::LossScaler scaler_{optim::LossScaler::Use::none};
};

StrategyEntry fedavg();

}  // namespace dtrain::parallel
