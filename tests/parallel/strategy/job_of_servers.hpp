#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "parallel/strategy/job_of_rounds.hpp"

namespace dtrain::parallel {

/// Copies that take their work from servers, as a trainer lets them.
class JobOfServers : public JobOfRounds {
 public:
  explicit JobOfServers(comm::Drive drive = comm::Drive::inline_,
                        std::unique_ptr<models::Model> model = small_model())
      : JobOfRounds(std::move(model), drive) {}

  /// Does the steps, and agrees.
  StepOutcome train(Strategy& strategy, const WorkRange& steps) {
    units = 0;
    while (const auto unit = strategy.take_work(steps)) {
      ++units;
      StepPlan plan{.number = unit->step, .learning_rate = rate, .share = 1.0 / copies()};
      plan.micro_batches.push_back(
          {.index = static_cast<std::uint32_t>(unit->micro_batch), .ids = {1, 2, 3}});
      EXPECT_FALSE(strategy.step(plan, none_).agreed);
    }
    return strategy.step({.number = steps.last, .learning_rate = rate, .pauses = true}, none_);
  }
  std::int64_t units = 0;  ///< That this rank had.

 private:
  NoSamples none_;
};

inline std::int64_t sum_of(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

}  // namespace dtrain::parallel
