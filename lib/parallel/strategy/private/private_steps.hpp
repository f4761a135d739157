#pragma once

#include <memory>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/step/step_control.hpp"
#include "parallel/strategy/private/private_account.hpp"
#include "parallel/strategy/private/sample_clipper.hpp"
#include "parallel/strategy/strategy.hpp"
#include "privacy/noise.hpp"

namespace dtrain::parallel {

/// The steps of `ddp` with differential privacy for each record (`--dp-clip`): the gradient of each sample is
/// clipped, the clipped ones are summed over all copies, noise is added once to the sum, and the whole is
/// divided by the expected number of samples, which is public: never by those that were drawn. Adjacency: one
/// record more or less. Source: Abadi et al., "Deep Learning with Differential Privacy", CCS 2016.
///
/// Each rank draws the noise of its part of the parameters, so that each element has noise once, and of a
/// seeded source the same on any number of ranks. Sums agree to rounding.
class PrivateSteps final : public Strategy, public PrivateAccount, private LocalSums {
 public:
  static Abilities can(const Setting& setting);

  /// Collective. Throws Error (exit code 2) where the noise for a target cannot be found.
  explicit PrivateSteps(const StrategyParts& parts);

  StepOutcome step(const StepPlan& plan, SampleSource& samples) override;
  void synchronise() override {}
  StateView state() override;
  void adopt_weights() override;
  void adopt_optimizer() override { adopt_ledger(); }
  void roll_back(std::int64_t /*number*/) override {}
  void compare_copies(std::int64_t number) override;
  optim::LossScaler& scaler() override { return scaler_; }

  PrivateTraining* privacy() override { return this; }

  std::vector<std::vector<std::int64_t>> draws(int epoch) const override;
  std::string in_words() const override;

 private:
  void begin_step(int micro_batches) override;
  void taken_back(int index) override;
  void add_noise(std::int64_t number);

  StrategyParts parts_;
  FlatParameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  SampleClipper clipper_;
  StepControl control_;
  optim::LossScaler scaler_{optim::LossScaler::Use::none};
  std::unique_ptr<privacy::Noise> noise_;
};

/// One step's mechanism of a run: the noise that was given, or that the target asks for. Throws Error (exit
/// code 2) where no noise keeps to it.
privacy::SampledGaussian mechanism_of(const Setting& setting);

}  // namespace dtrain::parallel
