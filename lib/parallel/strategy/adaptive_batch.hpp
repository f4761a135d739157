#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"
#include "parallel/step/step.hpp"
#include "parallel/strategy/state_view.hpp"

namespace dtrain::parallel {

/// `--adaptive-batch`: at the end of each epoch, how many batches of --global-batch a step takes from then
/// on, and what learning rates are multiplied by. Every rank has one, and all decide the same.
///
/// The noise scale N = S / |G|^2 is the batch from which on more samples add little to a step. With S and
/// |G|^2 averaged apart over the steps that were measured (those of earlier epochs count half as much with
/// each epoch) a step takes the power of two of batches that is nearest to N, at most twice and at least half
/// as many as before. N is not known where an average is not positive: then all stays. The rate that suits a
/// batch B is that of
/// --global-batch B0 times ((1 + N / B0) / (1 + N / B))^a: with much noise it rises in proportion, with
/// little not at all. a is 1 for sgd; for adam and adamw 1/2, the cautious end of what the source found.
/// Source: McCandlish et al., "An Empirical Model of Large-Batch Training", 2018.
class AdaptiveBatch {
 public:
  static constexpr std::int64_t kEvery = 16;        ///< Steps, of which one is measured.
  static constexpr std::int64_t kMostBatches = 16;  ///< Of a step.
  static constexpr std::int64_t kLeastSteps = 32;   ///< That an epoch still has.

  AdaptiveBatch(std::int64_t global_batch, const optim::OptimizerConfig& optimizer);

  /// Whether the norms of step `step` are to be measured.
  bool measures(std::int64_t step) const { return step / batches() % kEvery == 0; }
  /// Adds what a step came to over all ranks, if it was measured. `loss_scale`: that its gradient was
  /// multiplied by.
  void add(const StepTotals& total, double loss_scale);

  /// N, in samples; NaN: not known.
  double noise_scale() const;

  std::int64_t batches() const { return static_cast<std::int64_t>(number(kBatches)); }
  double rate() const { return number(kRate); }

  /// Decides for the epochs that follow; `batches_in_epoch`: of --global-batch. Returns what it found, for
  /// the run's events.
  std::string end_epoch(std::int64_t batches_in_epoch);

  /// Where it stands, to be written to and then adopted: double [4], and the --global-batch that this counts
  /// in, [1].
  std::vector<StateTensor> saved() const;
  /// saved() was read from a file. Of a run with another --global-batch the noise goes on, which is in
  /// samples; batches and rate begin with 1 again.
  void adopt();

 private:
  enum Field { kNoise, kSignal, kBatches, kRate, kFields };
  double& number(Field field) const { return state_.mutable_data_ptr<double>()[field]; }

  std::int64_t global_batch_;
  double exponent_;  // of the rule for rates
  at::Tensor state_;
  at::Tensor counted_in_;  // global_batch_, unless a file has another
};

}  // namespace dtrain::parallel
