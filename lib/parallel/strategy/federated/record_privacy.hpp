#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/strategy/federated/federated_privacy.hpp"
#include "parallel/strategy/private/sample_clipper.hpp"
#include "privacy/accountant.hpp"
#include "privacy/client_ledgers.hpp"
#include "privacy/noise.hpp"

namespace dtrain::parallel {

/// Differential privacy for each record of a client (`--dp-unit record`): the local steps are DP-SGD. Each
/// record of the client takes part in a local step by chance, independently, with the rate local batch /
/// records of the client; its gradient is clipped, noise is added to the sum, and the sum is divided by the
/// local batch. What leaves the client is private then, whatever rounds and server do with it. Adjacency: one
/// record of one client more or less. Numbers of records are public.
///
/// Each client has a ledger of its own: its local steps in the rounds in which it took part. The largest
/// epsilon of all clients is the run's. The run ends when a client of the next round would release more than
/// the budget. Sources: Abadi et al., CCS 2016; Noble, Bellet and Dieuleveut, "Differentially Private
/// Federated Learning on Heterogeneous Data", AISTATS 2022, for clients each with a record-level guarantee.
class RecordPrivacy final : public FederatedPrivacy, public PrivateTraining {
 public:
  /// `parts` and `copy` are borrowed. Collective. Throws Error (exit code 2) where no noise keeps to the
  /// target.
  RecordPrivacy(const StrategyParts& parts, LocalCopy& copy);

  PrivateTraining& training() override { return *this; }
  std::optional<LocalCopy::Pass> compute(const StepPlan& plan, int client, SampleSource& samples) override;
  void commit(const StepPlan& plan, bool released) override;
  std::string ledger_after(const RoundPlan& round) const override { return with(round).lines(); }
  std::vector<StateTensor> state() override;
  void adopt() override;

  std::optional<std::vector<std::int64_t>> drawn_records(std::int64_t round, std::uint32_t index,
                                                         int client) const override;
  std::string ledger() const override { return ledgers_.lines(); }
  std::int64_t take_ledger(const std::string& lines, const std::string& file) override;
  std::int64_t releases() const override { return ledgers_.of(worst().client).steps(); }
  bool is_spent() override;
  double epsilon() const override { return worst().epsilon; }
  Terms terms() const override;
  std::vector<OfClient> by_client() const override;
  std::string in_words() const override;

 private:
  struct Worst {
    std::size_t client = 0;
    double epsilon = 0;
  };
  privacy::SampledGaussian mechanism_of(std::size_t client) const;
  double epsilon_of(const privacy::Mechanisms& mechanisms) const;
  const Worst& worst() const;
  double noise_for_all() const;
  privacy::ClientLedgers with(const RoundPlan& round) const;
  void changed();

  const StrategyParts& parts_;
  LocalCopy& copy_;
  SampleClipper clipper_;
  std::unique_ptr<privacy::Noise> noise_;
  std::uint64_t draw_seed_;
  double noise_multiplier_;
  privacy::ClientLedgers ledgers_;
  std::int64_t round_ = 0;              // committed last
  at::Tensor saved_;                    // the ledgers' numbers, and round_
  mutable std::optional<Worst> worst_;  // nothing: not known yet
};

}  // namespace dtrain::parallel
