#include "optim/loss_scaler.hpp"

namespace dtrain::optim {

bool LossScaler::leaves_out(bool finite) {
  if (use_ == Use::none) return false;
  if (!finite) {
    if (state_.scale <= kSmallest) return false;
    change(0.5);
    ++state_.left_out;
    return true;
  }
  if (++state_.good_steps == kStepsToDouble) change(2.0);
  return false;
}

void LossScaler::keep(std::int64_t step) {
  kept_ = state_;
  kept_step_ = step;
}

void LossScaler::take_back(std::int64_t step) {
  if (step == kept_step_) state_ = kept_;
}

void LossScaler::change(double factor) {
  state_.scale *= factor;
  state_.good_steps = 0;
}

void LossScaler::go_on_from(const LossScale& state) {
  state_.left_out = state.left_out;
  if (use_ == Use::dynamic && state.scale > 0.0) state_ = state;
}

}  // namespace dtrain::optim
