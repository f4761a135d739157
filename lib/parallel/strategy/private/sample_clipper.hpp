#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/per_sample/clipped_sum.hpp"
#include "parallel/gradients/per_sample/sample_walk.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// Adds up the clipped gradients of single samples: all samples of a micro-batch at once where each layer has
/// a rule, else one by one.
///
/// What layers draw for a sample, such as a dropout mask, may not tell of other samples. Of samples that pass
/// together it depends on their places, which one sample more changes: it comes from a secret seed, so that
/// the places say nothing. A sample that passes alone has the draws of its number.
class SampleClipper {
 public:
  /// Passes the one sample of `plan` forward and back, and calls ClippedSum::take_sample() when its gradients
  /// are in the parameters' .grad.
  using PassOne =
      std::function<std::vector<MicroBatchLoss>(const StepPlan& plan, SampleSource& one, ClippedSum& sum)>;

  /// All is borrowed.
  SampleClipper(const StrategyParts& parts, FlatParameters& parameters, PassOne pass_one);

  void begin_step() { sum_.begin_step(); }

  /// Adds the samples of the plan's micro-batch `m`, which were `read`, and returns their loss. `secret`: the
  /// seed of what layers draw, the same on all ranks; a step of another micro-batch has other draws.
  models::LossSums add(const StepPlan& plan, std::size_t m, const Samples& read, std::uint64_t secret);

  ClippedSum& sum() { return sum_; }
  /// Why samples pass one by one; empty: they do not.
  const std::string& obstacle() const { return obstacle_; }

 private:
  models::LossSums one_by_one(const StepPlan& plan, std::size_t m, const Samples& samples);

  const StrategyParts& parts_;
  PassOne pass_one_;
  ClippedSum sum_;
  std::string obstacle_;
  std::optional<SampleWalk> walk_;  // nothing: samples pass through the model one by one
};

}  // namespace dtrain::parallel
