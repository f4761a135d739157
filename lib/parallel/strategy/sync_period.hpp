#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace dtrain::parallel {

/// How many steps the copies of a model make on their own between two exchanges: a fixed number, or one that
/// the training loss decides. Every rank of a run has one, and all say the same.
///
/// Adaptive: it begins with kFirst, and is chosen anew after each kInterval steps. With F the mean loss of
/// the interval and F0 that of the first round it is ceil(kFirst sqrt(F / F0)), or half of the last one,
/// rounded up, where that is not less: long rounds where the loss falls fast, and more agreement where it
/// does not. Source: Wang and Joshi, "Adaptive Communication Strategies to Achieve the Best Error-Runtime
/// Trade-off in Local-Update SGD", MLSys 2019, equation 19 with gamma = 1/2. An interval is counted in steps,
/// not in seconds as there, so that a resumed run decides the same.
class SyncPeriod {
 public:
  static constexpr std::int64_t kFirst = 16;      ///< Steps.
  static constexpr std::int64_t kInterval = 160;  ///< Steps.

  /// `text`: a number of steps, or `adaptive`. Throws Error (exit code 2) naming --sync-period.
  explicit SyncPeriod(const std::string& text);

  std::int64_t steps() const { return static_cast<std::int64_t>(number(kPeriod)); }
  bool adapts() const { return adapts_; }

  /// The loss of a round, summed over all copies, and its weight; `steps`: of each copy. Whether the period
  /// has changed. A fixed one never does.
  bool round_done(double loss, double weight, std::int64_t steps);

  /// Where it stands, double [5]: writing to it restores that.
  const at::Tensor& state() const { return state_; }

 private:
  enum Field { kPeriod, kFirstLoss, kLoss, kWeight, kSteps, kFields };
  double& number(Field field) const { return state_.mutable_data_ptr<double>()[field]; }

  bool adapts_ = false;
  at::Tensor state_;
};

}  // namespace dtrain::parallel
