#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/slice.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/strategy/private_training.hpp"
#include "parallel/strategy/strategy.hpp"
#include "privacy/accountant.hpp"
#include "privacy/ledger.hpp"
#include "privacy/noise.hpp"

namespace dtrain::parallel {

/// Whether the clipped contributions of a run bound what one record or client does to it, whatever the
/// strategy is.
Answer can_be_private(const Setting& setting);

privacy::Accounting accounting_of(const StrategyOptions& options);

/// `mechanism` with the noise that was given, or that the target asks for. Throws Error (exit code 2) where
/// no noise reaches it.
privacy::SampledGaussian with_noise(privacy::SampledGaussian mechanism, const StrategyOptions& options);
std::unique_ptr<privacy::Noise> noise_of(const StrategyParts& parts);

/// A seed for what is drawn in secret, as the noise is: an observer must not know the samples or clients of a
/// step. The same on all ranks; with a seeded source that of the run. Collective over the data group.
std::uint64_t agreed_draw_seed(const StrategyParts& parts);
/// A number that each rank has found, the largest of them: they must not differ by a rounding. Collective.
double same_on_all_ranks(const StrategyParts& parts, double number);

/// Adds noise to elements `part` of the flat parameters, but not to the gaps between parameters. `values`
/// [part.size()], float or double. `step`: see privacy::Noise::add().
void add_noise(privacy::Noise& noise, const FlatParameters& parameters, const Range& part, double deviation,
               std::int64_t step, at::Tensor values);

/// A private run all of whose steps are of one mechanism: its ledger, and how many of them the budget allows.
class PrivateAccount : public PrivateTraining {
 public:
  std::string ledger() const final { return ledger_.lines(unit_); }
  std::int64_t take_ledger(const std::string& lines, const std::string& file) final;
  std::int64_t releases() const final { return ledger_.steps(); }
  bool is_spent() final;
  double epsilon() const final;
  Terms terms() const final;

 protected:
  /// `mechanism`: of one step; its `steps` count nothing. `unit`: what is protected; empty: a record. `data`
  /// of `parts` is borrowed. Collective.
  PrivateAccount(const StrategyParts& parts, const privacy::SampledGaussian& mechanism,
                 const std::string& unit);

  const privacy::SampledGaussian& mechanism() const { return mechanism_; }
  std::uint64_t draw_seed() const { return draw_seed_; }
  /// To which a contribution is clipped at present.
  virtual double clip() const { return options_.dp_clip; }

  void add_step();  ///< With the update that it belongs to.
  /// ledger(), as it will be after another step.
  std::string ledger_after_step() const;

  /// What a checkpoint has of it, and what follows when it was read from one.
  StateTensor ledger_state();
  void adopt_ledger();

 private:
  void save();

  comm::Group& data_;
  StrategyOptions options_;
  std::int64_t total_steps_;
  privacy::SampledGaussian mechanism_;
  std::string unit_;
  privacy::Ledger ledger_;
  std::uint64_t draw_seed_ = 0;
  at::Tensor saved_;                        // the ledger's numbers, and draw_seed_ in two halves
  std::optional<std::int64_t> steps_left_;  // of the budget; nothing: not known yet
};

}  // namespace dtrain::parallel
