#pragma once

#include <cstdint>

#include "record/tensorboard_writer.hpp"

namespace dtrain::record {

/// Curves of the training by step for TensorBoard, `train_by_step/loss` and its like: a point at most each
/// second, the mean of what came since the one before.
class StepCurves {
 public:
  /// `least_s`: of training, from one point to the next.
  explicit StepCurves(TensorBoardWriter& writer, double least_s = 1) : writer_(writer), least_s_(least_s) {}

  struct Step {
    std::int64_t number = 0;   ///< Of the run, from 1.
    double loss = 0;           ///< Summed over the samples of all ranks since the last call.
    double weight = 0;         ///< Samples, target tokens or class weights in `loss`.
    double samples = 0;        ///< Of all ranks, since the last call.
    double time_s = 0;         ///< Of the steps since the last call.
    double gradient_norm = 0;  ///< Of the mean gradient.
    double learning_rate = 0;
  };
  /// After steps that all ranks agree on. Throws Error when the disk is full.
  void add(const Step& step);

 private:
  TensorBoardWriter& writer_;
  double least_s_;
  bool has_point_ = false;
  double loss_ = 0;  // these since the last point
  double weight_ = 0;
  double samples_ = 0;
  double time_s_ = 0;
};

}  // namespace dtrain::record
