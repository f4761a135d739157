#include "models/networks/mlp.hpp"

#include <fmt/format.h>

#include "models/layers/activation.hpp"
#include "models/layers/flatten.hpp"
#include "models/layers/linear.hpp"
#include "models/losses/losses.hpp"
#include "models/losses/regression_scores.hpp"
#include "models/networks/classifier.hpp"
#include "models/options.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

/// Of one number per sample, or several.
class Regression final : public Model {
 public:
  Regression(std::vector<std::unique_ptr<Layer>> layers, Loss loss, std::int64_t targets)
      : Model("mlp", std::move(layers)), loss_(loss), targets_(targets) {}
  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override {
    return regression_sums(loss_, outputs.at(0), targets);
  }
  ExtraColumns extra_columns() const override { return regression_columns(targets_); }
  std::vector<double> extra_sums(const Tensors& outputs, const at::Tensor& targets,
                                 Feedback /*words*/) const override {
    return regression_score_sums(outputs.at(0), targets, targets_);
  }
  std::vector<double> extra_values(std::span<const double> sums, double /*loss*/) const override {
    return regression_scores(sums);
  }

 private:
  Loss loss_;
  std::int64_t targets_;
};

/// input_fc, then hidden_fc (hidden_fc1, hidden_fc2, ... when there are several), then output_fc.
std::string layer_name(std::size_t index, std::size_t hidden_count) {
  if (index == hidden_count) return "output_fc";
  if (index == 0) return "input_fc";
  return hidden_count == 2 ? "hidden_fc" : fmt::format("hidden_fc{}", index);
}

/// In pairs, first by columns and second by rows; a last one without a partner stays whole.
Slicing slicing_of(std::size_t index, std::size_t hidden_count) {
  if (index % 2 == 1) return Slicing::row;
  return index < hidden_count ? Slicing::column : Slicing::none;
}

std::unique_ptr<Model> make_mlp(const DatasetFacts& facts, const ModelOptions& options) {
  refuse_unknown("mlp", options, {"hidden", "activation"});
  const Function function = function_of(option_or(options, "activation", "relu"));
  const auto hidden = parse_sizes("hidden", option_or(options, "hidden", "250,100"));
  if (facts.sample_shape.empty() || facts.vocabulary > 0) {
    throw usage_error(
        fmt::format(
            "the model mlp takes images or table rows, not samples of shape {} with a vocabulary of {}",
            shape_text(facts.sample_shape), facts.vocabulary),
        "--model mlp", "use another --model or --dataset");
  }
  const Loss loss = loss_of(facts, "mlp", losses_of_task(facts));
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<Flatten>("flatten"));
  auto features = static_cast<std::int64_t>(element_count(facts.sample_shape));
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const std::string name = layer_name(i, hidden.size());
    layers.push_back(std::make_unique<Linear>(name, features, hidden[i], slicing_of(i, hidden.size())));
    layers.push_back(std::make_unique<Activation>(name + "_activation", function, Overwrite::input));
    features = hidden[i];
  }
  const std::int64_t outputs = facts.classes > 0 ? facts.classes : facts.targets;
  layers.push_back(
      std::make_unique<Linear>("output_fc", features, outputs, slicing_of(hidden.size(), hidden.size())));
  if (loss == Loss::cross_entropy)
    return std::make_unique<Classifier>("mlp", std::move(layers), facts.classes);
  return std::make_unique<Regression>(std::move(layers), loss, facts.targets);
}

}  // namespace

Registration mlp() { return {"mlp", {.dataset = "mnist"}, &make_mlp}; }

}  // namespace dtrain::models
