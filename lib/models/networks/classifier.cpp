#include "models/networks/classifier.hpp"

#include <ATen/ops/bincount.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "models/compute/beside.hpp"
#include "models/losses/losses.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kTop = 5;

// The sums are the samples, those among the first five, and the confusion matrix.
constexpr std::size_t kScalars = 2;

}  // namespace

Classifier::Classifier(std::string name, std::vector<std::unique_ptr<Layer>> layers, std::int64_t classes)
    : Model(std::move(name), std::move(layers)), classes_(classes) {}

LossSums Classifier::loss(const Tensors& outputs, const at::Tensor& targets) const {
  return cross_entropy_sums(outputs.at(0), targets);
}

LossSums Classifier::training_loss(const Tensors& outputs, const at::Tensor& targets,
                                   const TrainingLoss& how) const {
  return cross_entropy_sums(outputs.at(0), targets, how);
}

ExtraColumns Classifier::extra_columns() const {
  ExtraColumns extra;
  const bool confused = classes_ <= kMostConfused;
  if (confused) extra.columns.push_back({"validation_f1", "1", ExtraColumns::Log::no});
  if (classes_ > kTop) extra.columns.push_back({"validation_top5", "1", ExtraColumns::Log::no});
  extra.confusion_classes = confused ? classes_ : 0;
  extra.sums = kScalars + static_cast<std::size_t>(extra.confusion_classes * extra.confusion_classes);
  return extra;
}

std::vector<double> Classifier::extra_sums(const Tensors& outputs, const at::Tensor& targets,
                                           Feedback /*words*/) const {
  std::vector<double> sums(extra_columns().sums);
  const at::Tensor& logits = outputs.at(0);
  if (logits.size(0) == 0) return sums;
  const at::Tensor wanted = beside(targets, logits);
  sums[0] = static_cast<double>(logits.size(0));
  if (classes_ > kTop) {
    const auto first = std::get<1>(logits.topk(kTop, 1));
    sums[1] = static_cast<double>(first.eq(wanted.unsqueeze(1)).sum().item<std::int64_t>());
  }
  if (sums.size() > kScalars) {
    const auto cells = at::bincount(wanted * classes_ + logits.argmax(1), {}, classes_ * classes_).cpu();
    std::copy_n(cells.const_data_ptr<std::int64_t>(), classes_ * classes_, sums.begin() + kScalars);
  }
  return sums;
}

std::vector<double> Classifier::extra_values(std::span<const double> sums, double /*loss*/) const {
  std::vector<double> values;
  if (sums.size() > kScalars) values.push_back(macro_f1(sums.subspan(kScalars), classes_));
  if (classes_ > kTop) values.push_back(sums[1] / sums[0]);
  return values;
}

double macro_f1(std::span<const double> confusion, std::int64_t classes) {
  const auto n = static_cast<std::size_t>(classes);
  double total = 0;
  std::size_t counted = 0;
  for (std::size_t k = 0; k < n; ++k) {
    double of_class = 0;
    double predicted = 0;
    for (std::size_t other = 0; other < n; ++other) {
      of_class += confusion[k * n + other];
      predicted += confusion[other * n + k];
    }
    if (of_class + predicted == 0) continue;
    total += 2 * confusion[k * n + k] / (of_class + predicted);
    ++counted;
  }
  return counted == 0 ? std::numeric_limits<double>::quiet_NaN() : total / static_cast<double>(counted);
}

}  // namespace dtrain::models
