#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/model.hpp"

namespace dtrain::models {

/// Classes up to which a Classifier counts a confusion matrix, and has an F1 score from it.
inline constexpr std::int64_t kMostConfused = 1000;

/// A network whose outputs are logits [n, classes], trained with cross-entropy. Its columns:
/// `validation_f1`, the mean over classes of 2 TP / (2 TP + FP + FN) (a class without samples and predictions
/// is left out), and with more than five classes `validation_top5`, the part of the samples whose class is
/// among the five largest outputs.
class Classifier final : public Model {
 public:
  Classifier(std::string name, std::vector<std::unique_ptr<Layer>> layers, std::int64_t classes);

  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override;
  LossSums training_loss(const Tensors& outputs, const at::Tensor& targets,
                         const TrainingLoss& how) const override;
  bool classifies() const override { return true; }
  ExtraColumns extra_columns() const override;
  std::vector<double> extra_sums(const Tensors& outputs, const at::Tensor& targets,
                                 Feedback words) const override;
  std::vector<double> extra_values(std::span<const double> sums, double loss) const override;

 private:
  std::int64_t classes_;
};

/// The mean F1 score of a confusion matrix [classes, classes], rows being the true classes; NaN without
/// samples. Source: Sokolova and Lapalme, "A systematic analysis of performance measures", 2009 (macro).
double macro_f1(std::span<const double> confusion, std::int64_t classes);

}  // namespace dtrain::models
