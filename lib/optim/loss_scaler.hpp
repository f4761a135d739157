#pragma once

#include <cstdint>

namespace dtrain::optim {

/// Where a LossScaler stands: what a checkpoint keeps of it.
struct LossScale {
  double scale = 0;             ///< 0: nothing is scaled.
  std::int64_t good_steps = 0;  ///< In a row, since it changed.
  /// Steps that made no update of the optimizer's state, since the run began; negative where that state comes
  /// from a run of more steps.
  std::int64_t left_out = 0;
};

/// What the loss is multiplied by before backward, so that small gradients do not vanish in fp16; the update
/// divides by it again. It is halved by a step whose gradient is not finite, which is left out, and doubled
/// after many good ones in a row. All ranks do the same, for they agree on each step. Source: Micikevicius et
/// al., "Mixed Precision Training", ICLR 2018, section 3.2; the constants are those of PyTorch's GradScaler.
class LossScaler {
 public:
  enum class Use { none, dynamic };
  explicit LossScaler(Use use) : use_(use), state_{.scale = use == Use::none ? 0.0 : kFirst} {}

  double scale() const { return use_ == Use::none ? 1.0 : state_.scale; }

  /// At the end of a step. Whether it is to be left out; never where the scale is fixed or can fall no
  /// further: then numbers that are not finite have another cause.
  bool leaves_out(bool finite);

  /// Keeps the scale before step `step`, for a roll back.
  void keep(std::int64_t step);
  /// As it was before step `step`, if that is the one kept; else nothing changes. A step that is repeated
  /// must meet the scale and the number of updates that it met the first time.
  void take_back(std::int64_t step);

  /// The number of updates up to step `step`, counted from 1, if this one is made: what Adam's moments are
  /// corrected for.
  std::int64_t updates(std::int64_t step) const { return step - state_.left_out; }

  /// To go on from; empty where nothing is scaled.
  const LossScale& state() const { return state_; }
  /// An empty state, of a run that did not scale, changes nothing; the number of updates goes on in any case.
  void go_on_from(const LossScale& state);

 private:
  static constexpr double kFirst = 1024.0;  // of a sum: 65536 for the mean of 64 samples
  static constexpr double kSmallest = 1.0;
  static constexpr int kStepsToDouble = 2000;
  void change(double factor);
  Use use_;
  LossScale state_;
  LossScale kept_;
  std::int64_t kept_step_ = 0;  // 0: none
};

}  // namespace dtrain::optim
