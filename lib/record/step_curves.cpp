#include "record/step_curves.hpp"

namespace dtrain::record {

void StepCurves::add(const Step& step) {
  loss_ += step.loss;
  weight_ += step.weight;
  samples_ += step.samples;
  time_s_ += step.time_s;
  if (has_point_ && time_s_ < least_s_) return;
  has_point_ = true;
  if (weight_ > 0) writer_.scalar("train_by_step/loss", step.number, loss_ / weight_);
  writer_.scalar("train_by_step/gradient_norm", step.number, step.gradient_norm);
  writer_.scalar("train_by_step/learning_rate", step.number, step.learning_rate);
  if (time_s_ > 0) writer_.scalar("train_by_step/samples_per_s", step.number, samples_ / time_s_);
  writer_.flush();
  loss_ = weight_ = samples_ = time_s_ = 0;
}

}  // namespace dtrain::record
