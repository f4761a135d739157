#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/strategy/federated/federated_privacy.hpp"
#include "parallel/strategy/private/private_account.hpp"
#include "secure_aggregation/settings.hpp"

namespace dtrain::parallel {

/// Differential privacy for each client in secure sums (`--dp-unit client --secure-aggregation on`): the norm
/// of what a client hands in is clipped, and each client adds its part of the noise before its masks, so that
/// not even the server learns a sum without noise: SecureRounds. All clients count alike, and nothing but
/// updates is summed.
///
/// Adjacency: the update of one client becomes zeros. The server knows which clients take part, so that no
/// chance hides them: a round counts as if each took part. Noise is that of the fewest clients of a sum. A
/// round without a sum releases nothing. Source: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian
/// Mechanism for Federated Learning with Secure Aggregation", ICML 2021, theorem 1: a bound of Renyi
/// divergences, which is that of a Gaussian with the noise that the ledger has.
class SecurePrivacy final : public FederatedPrivacy, public PrivateAccount {
 public:
  static Answer can(const Setting& setting);

  /// For updates of `values` numbers. Collective. Throws Error (exit code 2) where no noise keeps to the
  /// target, or clients and noise do not fit the ring.
  SecurePrivacy(const StrategyParts& parts, std::int64_t values);

  PrivateTraining& training() override { return *this; }
  void commit(const StepPlan& plan, bool released) override;
  std::string ledger_after(const RoundPlan& /*round*/) const override { return ledger_after_step(); }
  std::vector<StateTensor> state() override { return {ledger_state()}; }
  void adopt() override { adopt_ledger(); }

  std::string in_words() const override;

 private:
  SecurePrivacy(const StrategyParts& parts, const secure_aggregation::Settings& settings);

  StrategyOptions options_;
  secure_aggregation::Settings settings_;
};

/// Whether secure sums protect clients: `--dp-unit client`.
bool hides_clients(const Setting& setting);

}  // namespace dtrain::parallel
