#include "train/loss_scaler.hpp"

namespace dtrain::train {

bool LossScaler::leaves_out(bool finite) {
  if (use_ == Use::none) return false;
  if (!finite) {
    if (state_.scale <= kSmallest) return false;
    state_ = {.scale = state_.scale / 2.0, .good_steps = 0};
    return true;
  }
  if (++state_.good_steps == kStepsToDouble) state_ = {.scale = state_.scale * 2.0, .good_steps = 0};
  return false;
}

void LossScaler::go_on_from(const checkpoint::LossScale& state) {
  if (use_ == Use::dynamic && state.scale > 0.0) state_ = state;
}

}  // namespace dtrain::train
