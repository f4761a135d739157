#pragma once

#include <cstddef>
#include <vector>

#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// Brings the micro-batches of a plan as the model takes them.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// The plan's micro-batch `m`, counted from 0 within the plan. Each is taken once, in ascending order.
  /// Throws Error where another one comes in.
  virtual Samples take(const StepPlan& plan, std::size_t m) = 0;

  /// All micro-batches of a plan of which none is taken yet; take() still brings each of them.
  virtual std::vector<Samples> look_ahead(const StepPlan& plan) = 0;

  /// Reads the first micro-batch of the plan that follows now. take() brings it later.
  virtual void read_ahead() = 0;
};

}  // namespace dtrain::parallel
