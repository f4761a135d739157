#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/per_sample/clipped_sum.hpp"
#include "parallel/gradients/per_sample/sample_walk.hpp"
#include "parallel/step/step_control.hpp"
#include "parallel/strategy/private_training.hpp"
#include "parallel/strategy/strategy.hpp"
#include "privacy/ledger.hpp"
#include "privacy/noise.hpp"

namespace dtrain::parallel {

/// The steps of `ddp` with differential privacy for each record (`--dp-clip`): the gradient of each sample is
/// clipped, the clipped ones are summed over all copies, noise is added once to the sum, and the whole is
/// divided by the expected number of samples, which is public: never by those that were drawn. Adjacency: one
/// record more or less. Source: Abadi et al., "Deep Learning with Differential Privacy", CCS 2016.
///
/// Each rank draws the noise of its part of the parameters, so that each element has noise once, and of a
/// seeded source the same on any number of ranks. Sums agree to rounding.
class PrivateSteps final : public Strategy, public PrivateTraining, private LocalSums {
 public:
  static Abilities can(const Setting& setting);

  /// Collective. Throws Error (exit code 2) where the noise for a target cannot be found.
  explicit PrivateSteps(const StrategyParts& parts);

  StepOutcome step(const StepPlan& plan, SampleSource& samples) override;
  void synchronise() override {}
  StateView state() override;
  void adopt_weights() override;
  void adopt_optimizer() override;
  void roll_back(std::int64_t /*number*/) override {}
  void compare_copies(std::int64_t number) override;
  optim::LossScaler& scaler() override { return scaler_; }

  PrivateTraining* privacy() override { return this; }

  std::vector<std::vector<std::int64_t>> draws(int epoch) const override;
  const privacy::Ledger& ledger() const override { return ledger_; }
  void take_ledger(const privacy::Ledger& earlier) override;
  bool is_spent() override;
  double epsilon() const override;
  Terms terms() const override;
  std::string in_words() const override;

 private:
  void begin_step(int micro_batches) override;
  void taken_back(int index) override;
  models::LossSums one_by_one(const StepPlan& plan, std::size_t m, const Samples& samples);
  void add_noise(std::int64_t number);
  void agree_on_seed();
  void save_ledger();

  StrategyParts parts_;
  FlatParameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  ClippedSum sum_;
  std::optional<SampleWalk> walk_;  // nothing: samples pass through the engine one by one
  StepControl control_;
  optim::LossScaler scaler_{optim::LossScaler::Use::none};
  privacy::SampledGaussian mechanism_;  // of one step
  std::unique_ptr<privacy::Noise> noise_;
  privacy::Ledger ledger_;
  std::uint64_t draw_seed_ = 0;
  at::Tensor saved_;                        // the ledger's numbers, and draw_seed_ in two halves
  std::optional<std::int64_t> steps_left_;  // of the budget; nothing: not known yet
};

/// One step's mechanism of a run: the noise that was given, or that the target asks for. Throws Error (exit
/// code 2) where no noise keeps to it.
privacy::SampledGaussian mechanism_of(const Setting& setting);

}  // namespace dtrain::parallel
