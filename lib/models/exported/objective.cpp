#include "models/exported/objective.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "core/error.hpp"
#include "models/losses/losses.hpp"
#include "models/losses/regression_scores.hpp"
#include "models/losses/token_loss.hpp"
#include "models/networks/classifier.hpp"
#include "models/plugins/additions.hpp"
#include "models/shape.hpp"

namespace dtrain::models::exported {
namespace {

using Layers = std::vector<std::unique_ptr<Layer>>;

/// A class for each place of an image or sequence: outputs [n, classes, ...], targets [n, ...].
class PlaceClassifier final : public Model {
 public:
  explicit PlaceClassifier(const std::string& name) : Model(name, Layers()) {}
  bool has_cross_entropy() const override { return true; }
  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override {
    return training_loss(outputs, targets, {});
  }
  LossSums training_loss(const Tensors& outputs, const at::Tensor& targets,
                         const TrainingLoss& how) const override {
    const at::Tensor& logits = outputs.at(0);
    return cross_entropy_sums(logits.movedim(1, -1).flatten(0, -2), targets.flatten(), how);
  }
};

/// A word for each place of a sequence: outputs [n, T, words], targets [n, T].
class LanguageModel final : public Model {
 public:
  explicit LanguageModel(const std::string& name) : Model(name, Layers()) {}
  bool has_cross_entropy() const override { return true; }
  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override {
    return training_loss(outputs, targets, {});
  }
  LossSums training_loss(const Tensors& outputs, const at::Tensor& targets,
                         const TrainingLoss& how) const override {
    return token_cross_entropy_sums(outputs.at(0).flatten(0, -2), targets.flatten(), how.label_smoothing);
  }
  ExtraColumns extra_columns() const override {
    return {{{"validation_perplexity", "1"}, {"validation_token_accuracy", "1", ExtraColumns::Log::no}}, 2};
  }
  std::vector<double> extra_sums(const Tensors& outputs, const at::Tensor& targets,
                                 Feedback /*words*/) const override {
    return {static_cast<double>(targets.numel()),
            right_tokens(outputs.at(0).flatten(0, -2), targets.flatten(), {}, nullptr)};
  }
  std::vector<double> extra_values(std::span<const double> sums, double loss) const override {
    return {std::exp(loss), sums[1] / sums[0]};
  }
};

class Regression final : public Model {
 public:
  /// `targets`: numbers per sample; 0: what the model gives is not scored.
  Regression(const std::string& name, Loss loss, Goal goal, std::int64_t targets)
      : Model(name, Layers()), loss_(loss), goal_(goal), targets_(targets) {}
  Goal goal() const override { return goal_; }
  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override {
    return regression_sums(loss_, outputs.at(0), targets);
  }
  ExtraColumns extra_columns() const override {
    return targets_ > 0 ? regression_columns(targets_) : ExtraColumns();
  }
  std::vector<double> extra_sums(const Tensors& outputs, const at::Tensor& targets,
                                 Feedback /*words*/) const override {
    return targets_ > 0 ? regression_score_sums(outputs.at(0), targets, targets_) : std::vector<double>();
  }
  std::vector<double> extra_values(std::span<const double> sums, double /*loss*/) const override {
    return targets_ > 0 ? regression_scores(sums) : std::vector<double>();
  }

 private:
  Loss loss_;
  Goal goal_;
  std::int64_t targets_;
};

/// The program's first output is the mean loss of the samples that it was given.
class OwnLoss final : public Model {
 public:
  explicit OwnLoss(const std::string& name) : Model(name, Layers()) {}
  Goal goal() const override { return Goal::own_loss; }
  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override {
    const auto samples = static_cast<double>(targets.size(0));
    return {.loss = outputs.at(0).sum() * samples, .correct = {}, .weight = samples};
  }
};

Error misfit(const std::string& name, const DatasetFacts& facts, const Shape& outputs,
             const std::string& wanted) {
  return usage_error(fmt::format("gives outputs {} for two samples, and the loss of a dataset of {} takes {}",
                                 shape_text(outputs), facts.task, wanted),
                     fmt::format("--model {}.pt2", name),
                     "export a module with such outputs, or choose another --dataset or --loss");
}

std::unique_ptr<Model> for_classes(const std::string& name, const DatasetFacts& facts, const Shape& outputs) {
  if (outputs.size() == 2 && outputs[1] == facts.classes)
    return std::make_unique<Classifier>(name, Layers(), facts.classes);
  if (outputs.size() > 2 && outputs[1] == facts.classes) return std::make_unique<PlaceClassifier>(name);
  throw misfit(name, facts, outputs, fmt::format("[2, {}]: a logit for each class", facts.classes));
}

}  // namespace

bool is_own_loss(const DatasetFacts& facts) { return facts.loss == "model"; }

std::unique_ptr<Model> make_objective(const std::string& name, const DatasetFacts& facts, const Shape& inputs,
                                      const Shape& outputs) {
  if (is_own_loss(facts)) {
    if (element_count(outputs) != 1) throw misfit(name, facts, outputs, "one number with --loss model");
    return std::make_unique<OwnLoss>(name);
  }
  if (const AddedLoss* added = find_added_loss(facts.loss)) {
    DatasetFacts plain = facts;
    plain.loss.clear();
    return with_added_loss(make_objective(name, plain, inputs, outputs), *added);
  }
  if (facts.task == "language_modelling") {
    loss_of(facts, name, {Loss::cross_entropy});
    const bool fits =
        outputs.size() == 3 && outputs[1] == facts.sample_shape.at(0) && outputs[2] >= facts.vocabulary;
    if (!fits) {
      throw misfit(name, facts, outputs,
                   fmt::format("[2, {}, {}]: a logit for each word at each place", facts.sample_shape.at(0),
                               facts.vocabulary));
    }
    return std::make_unique<LanguageModel>(name);
  }
  if (facts.task == "translation") {
    throw usage_error("is trained on pairs of sentences with its own loss only", "--loss " + facts.loss,
                      "let forward take source and target and return their mean loss, and use --loss model");
  }
  const bool repeats = outputs == inputs && facts.vocabulary == 0;
  if (facts.classes > 0 && (facts.loss.empty() || facts.loss == "cross_entropy"))
    return for_classes(name, facts, outputs);
  const Loss loss = facts.classes > 0 ? loss_of(facts, name, {Loss::cross_entropy, Loss::mse, Loss::mae})
                                      : loss_of(facts, name, {Loss::mse, Loss::mae});
  if (facts.classes > 0) {
    if (!repeats)
      throw misfit(name, facts, outputs, shape_text(inputs) + " with this --loss: its own inputs");
    return std::make_unique<Regression>(name, loss, Goal::own_input, 0);
  }
  if (element_count(outputs) != 2 * static_cast<double>(facts.targets))
    throw misfit(name, facts, outputs,
                 facts.targets == 1 ? std::string("[2] or [2, 1]: a number for each")
                                    : fmt::format("[2, {}]: a number for each target", facts.targets));
  return std::make_unique<Regression>(name, loss, Goal::target, facts.targets);
}

}  // namespace dtrain::models::exported
