#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "optim/optimizer.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/gradient_buckets.hpp"
#include "parallel/gradients/tied_parameters.hpp"
#include "parallel/memory/exchange_memory.hpp"
#include "parallel/memory/memory_meter.hpp"
#include "parallel/step/step_statistics.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// A rank's part of a copy of the model that can make steps of its own: parameters and optimizer state belong
/// to this rank alone, also where other copies are on the same node. The ranks of a copy make the same calls.
class LocalCopy final : private LocalSums {
 public:
  /// Collective: moves the model's values into a flat block, and gives all copies those of the first.
  explicit LocalCopy(const StrategyParts& parts);

  /// What the gradients of a step are summed over: this copy's micro-batches, or those of all copies.
  enum class Sums { of_copy, of_all };

  /// What a forward and backward pass has left.
  struct Pass {
    StepTotals own;         ///< Of this rank: its losses, and the part of the gradient it vouches for.
    double loss = 0;        ///< Of this copy, all its stages.
    double weight = 0;      ///< Likewise.
    double squares = 0;     ///< Of the copy's gradient, with Sums::of_copy.
    double non_finite = 0;  ///< Elements of it.
  };
  /// Runs the micro-batches forward and back; nothing is updated. Collective over the copy, with Sums::of_all
  /// over all.
  Pass compute(const StepPlan& plan, SampleSource& samples, Sums sums);

  /// Updates by the last gradient, times `scale`. `number`: of the updates of the optimizer's state, from 1.
  /// Collective over the copy.
  void update(double scale, double learning_rate, std::int64_t number);

  /// The running statistics alone, by what the last micro-batches had.
  void apply_statistics() { statistics_.apply(); }

  /// All copies become their mean, this one counting `share`; the shares of all add up to 1: parameters and
  /// buffers. Collective over all ranks.
  void average(double share);
  /// A part of the parameters becomes the sum over all copies, this one times `weight`. Returns the sum of
  /// the weights. Collective over the copies.
  double add_up(const Range& part, double weight);
  /// The same without the sum of the weights.
  void take_sum(const Range& part, double weight);
  /// average() of the optimizer's state alone.
  void average_optimizer(double share);
  void reset_optimizer();

  /// The model's values were read from a file: all copies take over those of the first.
  void adopt_weights();
  /// The flat parameters have been replaced on all stages: tied ones follow.
  void replaced() { tied_.exchange_values(); }
  /// All copies' buffers become their mean; counters of steps, those of the copy that made most.
  void average_buffers(double share);

  FlatParameters& parameters() { return parameters_; }
  at::Tensor& values() { return parameters_.values(); }                   ///< [size], flat.
  comm::Algorithm algorithm() const { return parts_.buckets.algorithm; }  ///< Of sums over the copies.
  optim::Optimizer& optimizer() { return *optimizer_; }
  const at::Tensor& gradients() const { return gradients_.gradients(); }
  /// The sum of values [n] over all copies, in place, the same bits on all of them.
  void sum_over_copies(at::Tensor& values);

 private:
  void begin_step(int micro_batches) override;
  void taken_back(int index) override { gradients_.taken_back(index); }
  void measure(Pass& pass, Sums sums);
  void agree_on_counters();

  StrategyParts parts_;
  MemoryCharge charge_;
  ExchangeMemory memory_;
  FlatParameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  GradientBuckets gradients_;
  StepStatistics statistics_;
  TiedParameters tied_;
  std::vector<Range> counted_;      // of the flat gradient in the norm of this copy,
  std::vector<Range> counted_own_;  // and in that of the sum over all copies
};

}  // namespace dtrain::parallel
