#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/strategy/federated/federated_privacy.hpp"
#include "parallel/strategy/private/private_account.hpp"

namespace dtrain::parallel {

/// Differential privacy for each client (`--dp-unit client`): what a client hands in is clipped, all its
/// parameters together, noise is added once to the sum over all clients of all ranks, and the sum is divided
/// by the expected number of clients, which is public: never by those that were drawn. Each client is drawn
/// by chance, independently (Poisson), and all count alike. A client that is drawn and drops out adds
/// nothing. Adjacency: one client more or less, with all its samples. Source: McMahan et al., "Learning
/// Differentially Private Recurrent Language Models", ICLR 2018.
///
/// Each rank draws the noise of its part of the parameters into the sum of whole numbers, so that each
/// element has noise once, and of a seeded source the sum has the same bits on any number of ranks.
///
/// Adaptive clipping: a client's bit says whether its update was within the clip norm C; the noisy share b of
/// such clients moves it: C becomes C exp(-kClipRate (b - quantile)). The bit, less 1/2, changes its sum by
/// 1/2 at most; with noise s_b it has the noise multiplier 2 s_b, and the update has z_u = (z^-2 -
/// (2 s_b)^-2)^(-1/2): both together have the multiplier z, which the ledger counts. Source: Andrew et al.,
/// "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021, theorem 1 and section 3.
class ClientPrivacy final : public FederatedPrivacy, public PrivateAccount {
 public:
  static constexpr double kClipRate = 0.2;
  /// The place of UpdateSum for the bits.
  static constexpr std::int64_t kBits = 3;

  static Answer can(const Setting& setting);

  /// `parts` and `parameters` are borrowed. Collective. Throws Error (exit code 2) where no noise keeps to
  /// the target, or sums of clipped updates would not fit UpdateSum.
  ClientPrivacy(const StrategyParts& parts, const FlatParameters& parameters);

  PrivateTraining& training() override { return *this; }
  double hand_in(at::Tensor& update, double share, UpdateSum& sum) override;
  void add_noise(std::int64_t round, UpdateSum& sum) override;
  void take_sum(const UpdateSum& sum) override;
  bool sum_is_mean() const override { return true; }
  void commit(const StepPlan& plan, bool released) override;
  std::string ledger_after(const RoundPlan& /*round*/) const override { return ledger_after_step(); }
  std::vector<StateTensor> state() override;
  void adopt() override { adopt_ledger(); }

  std::optional<std::vector<int>> drawn_clients(std::int64_t round) const override;
  std::string in_words() const override;

 private:
  double clip() const override { return clip_.const_data_ptr<double>()[0]; }
  double expected() const;  // clients of a round
  bool adapts() const { return parts_.setting.options.dp_adaptive_clip > 0; }
  double noise_of_bits() const;    // its deviation
  double noise_of_update() const;  // in multiples of the clip norm
  double largest_clip() const;
  double smallest_clip() const;
  double limit() const;

  const StrategyParts& parts_;
  const FlatParameters& parameters_;
  std::unique_ptr<privacy::Noise> noise_;
  at::Tensor clip_;    // [1], double
  double within_ = 0;  // of the sum taken last: the noisy share of clients whose updates were within the clip
};

}  // namespace dtrain::parallel
