#include "train/loop/model_selection.hpp"

#include <cmath>
#include <numeric>

#include "core/error.hpp"

namespace dtrain::train {
namespace {

/// Smaller, or a number where there was none.
bool is_less(double value, double best) { return std::isnan(best) ? !std::isnan(value) : value < best; }

}  // namespace

ModelSelection::ModelSelection(const ValidationConfig& config, std::int64_t steps_per_epoch, Scoring scoring,
                               std::int64_t validation_samples)
    : by_accuracy_(config.best_by == "accuracy"),
      patience_(config.early_stopping),
      every_steps_(config.every_steps()),
      steps_per_epoch_(steps_per_epoch) {
  require(!by_accuracy_ || scoring == Scoring::loss_and_accuracy, "the model has no accuracy on this dataset",
          {.subject = "--best-by accuracy", .advice = "use --best-by loss", .code = ExitCode::usage});
  const char* const option = every_steps_ > 0 ? "--validate-every"
                             : patience_ > 0  ? "--early-stopping"
                             : by_accuracy_   ? "--best-by"
                                              : nullptr;
  require(option == nullptr || validation_samples > 0, "the dataset has no validation split",
          {.subject = option == nullptr ? "" : option,
           .advice = "leave it out, or stage the dataset with one",
           .code = ExitCode::usage});
}

bool ModelSelection::due_within_epoch(std::int64_t step) const {
  return every_steps_ > 0 && step % every_steps_ == 0 && step % steps_per_epoch_ != 0;
}

bool ModelSelection::improves(const Scores& scores, const checkpoint::BestSoFar& best) const {
  if (best.step == 0) return true;
  if (!by_accuracy_) return is_less(scores.loss, best.loss);
  if (scores.accuracy == best.accuracy) return is_less(scores.loss, best.loss);
  return is_less(-scores.accuracy, -best.accuracy);
}

bool ModelSelection::is_exhausted(std::int64_t step, const checkpoint::BestSoFar& best) const {
  return patience_ > 0 && best.step > 0 && validations(step) - validations(best.step) >= patience_;
}

std::int64_t ModelSelection::validations(std::int64_t step) const {
  const auto epochs = step / steps_per_epoch_;
  if (every_steps_ == 0) return epochs;
  const auto epochs_to_meet = every_steps_ / std::gcd(every_steps_, steps_per_epoch_);
  return epochs + step / every_steps_ - epochs / epochs_to_meet;  // those that are both count once
}

}  // namespace dtrain::train
