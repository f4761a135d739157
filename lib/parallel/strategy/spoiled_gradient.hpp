#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/strategy/local_copy.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// The first gradient or loss of a copy that was not finite since the copies agreed: kept until all can be
/// told.
class SpoiledGradient {
 public:
  bool found() const { return step_ > 0; }
  void keep(std::int64_t step, const at::Tensor& gradient) {
    if (found()) return;
    step_ = step;
    gradient_ = gradient;
  }

  /// Throws Error, on all ranks, that names the first step that was spoiled on any of them. Collective over
  /// all ranks.
  [[noreturn]] void report(const StrategyParts& parts, LocalCopy& copy, const StepTotals& total) const;

 private:
  std::int64_t step_ = 0;  // 0: there is none
  at::Tensor gradient_;
};

}  // namespace dtrain::parallel
