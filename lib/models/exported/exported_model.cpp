#include "models/exported/exported_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/printable.hpp"
#include "models/exported/objective.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/packed_inputs.hpp"
#include "models/exported/program_layers.hpp"
#include "models/exported/size_limits.hpp"
#include "models/exported/slicing/cuts.hpp"
#include "models/options.hpp"
#include "models/shape.hpp"

namespace dtrain::models::exported {
namespace {

/// What the program takes as targets of `n` samples, the last of its inputs: their shape is the program's.
Shape shape_of_targets(const PlannedProgram& planned, std::int64_t n) {
  Shape targets = {n};
  const auto& inputs = planned.plan.user_inputs;
  if (inputs.size() < 2) return targets;
  const auto& sizes = planned.program.graph()[inputs.back()].tensor->sizes;
  for (std::size_t dim = 1; dim < sizes.size(); ++dim) {
    const auto size = sizes[dim].constant();
    if (!size) return {n};
    targets.push_back(*size);
  }
  return targets;
}

/// What the layers take for `n` samples. Those of the dataset may have other targets, see
/// train/setup/target_places.hpp.
std::vector<Shape> shapes_of_inputs(const PlannedProgram& planned, const DatasetFacts& facts, std::int64_t n,
                                    const Shape& sample) {
  Shape batch = {n};
  batch.insert(batch.end(), sample.begin(), sample.end());
  if (facts.task == "translation") return {batch, batch};
  if (!is_own_loss(facts)) return {batch};
  return {batch, facts.task == "language_modelling" ? batch : shape_of_targets(planned, n)};
}

class ExportedModel final : public Model {
 public:
  ExportedModel(const std::string& name, std::shared_ptr<const PlannedProgram> planned,
                std::vector<std::unique_ptr<Layer>> layers, std::unique_ptr<Model> objective,
                DatasetFacts facts, std::string remark)
      : Model(name, std::move(layers)),
        planned_(std::move(planned)),
        objective_(std::move(objective)),
        facts_(std::move(facts)),
        remark_(std::move(remark)) {}

  Goal goal() const override { return objective_->goal(); }
  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override {
    return objective_->loss(outputs, targets);
  }
  LossSums training_loss(const Tensors& outputs, const at::Tensor& targets,
                         const TrainingLoss& how) const override {
    return objective_->training_loss(outputs, targets, how);
  }
  bool classifies() const override { return objective_->classifies(); }
  bool has_cross_entropy() const override { return objective_->has_cross_entropy(); }
  ExtraColumns extra_columns() const override { return objective_->extra_columns(); }
  std::vector<double> extra_sums(const Tensors& outputs, const at::Tensor& targets,
                                 Feedback words) const override {
    return objective_->extra_sums(outputs, targets, words);
  }
  std::vector<double> extra_values(std::span<const double> sums, double loss) const override {
    return objective_->extra_values(sums, loss);
  }
  std::vector<Shape> input_shapes(std::int64_t n, const Shape& sample) const override {
    return shapes_of_inputs(*planned_, facts_, n, sample);
  }
  std::string remark() const override {
    if (group() == nullptr) return remark_;
    const auto cuts = cuts_in_words(find_cuts(*planned_, group()->size()));
    return remark_.empty() ? cuts : remark_ + "; " + cuts;
  }
  std::string program_hash() const override { return planned_->program.graph().hash; }
  std::string constants_hash() const override { return planned_->program.constants_hash(); }
  void save_program(const std::string& path) const override { planned_->program.save_without_weights(path); }
  std::map<std::string, std::string> tied_names() const {
    std::map<std::string, std::string> tied;
    for (const auto* input : planned_->program.graph().inputs_of(GraphInput::Kind::parameter)) {
      const auto& first = planned_->program.first_name(input->name);
      if (first != input->name) tied.emplace(input->name, first);
    }
    return tied;
  }

 private:
  std::shared_ptr<const PlannedProgram> planned_;
  std::unique_ptr<Model> objective_;
  DatasetFacts facts_;
  std::string remark_;
};

std::string facts_text(const TensorFacts& facts) {
  std::vector<std::string> sizes;
  for (const auto& size : facts.sizes) {
    const auto number = size.constant();
    sizes.push_back(number ? std::to_string(*number) : size.symbol().value_or("..."));
  }
  return fmt::format("[{}] of {}", fmt::join(sizes, ", "), at::toString(facts.type));
}

/// The inputs of the dataset that the program takes by name, the targets of its own loss left out; empty for
/// a dataset of one input.
std::vector<std::size_t> named_inputs(const PlannedProgram& planned, const DatasetFacts& facts) {
  if (facts.inputs.empty()) return {};
  std::vector<std::string> names;
  for (const ValueId input : planned.plan.user_inputs) names.push_back(planned.program.graph()[input].name);
  if (is_own_loss(facts) && !names.empty()) names.pop_back();
  return inputs_by_name(facts.inputs, names, "--model " + planned.program.file());
}

/// A table that is looked up with the program's inputs must have a row for each of the dataset's words.
void check_words(const PlannedProgram& planned, const DatasetFacts& facts) {
  const auto& graph = planned.program.graph();
  for (const Run& run : planned.plan.runs) {
    for (const Step& step : run.steps) {
      const Node& node = graph.nodes[step.node];
      const auto ids = step.texts                 ? step.texts
                       : calls(node, "embedding") ? tensor_of(node, "indices")
                                                  : std::nullopt;
      const auto* table = node.find("weight");
      if (!ids || table == nullptr || table->values.empty()) continue;
      const auto& inputs = planned.plan.user_inputs;
      const auto input = std::ranges::find(inputs, *ids);
      if (input == inputs.end() || !table->values[0]) continue;
      const auto rows = graph[*table->values[0]].tensor->sizes.at(0).constant().value_or(0);
      const auto named = named_inputs(planned, facts);
      const auto place = static_cast<std::size_t>(input - inputs.begin());
      const auto words = place < named.size()      ? facts.inputs[named[place]].ids
                         : input == inputs.begin() ? facts.vocabulary
                                                   : facts.target_vocabulary;
      if (rows >= words) continue;
      if (!named.empty()) {
        throw usage_error(
            fmt::format("has {} rows for the ids of its input {}, and the dataset's are below {}", rows,
                        printable(graph[*input].name, 50), words),
            "--model " + planned.program.file(), "export it with more rows");
      }
      throw usage_error(fmt::format("has {} rows for words, and the dataset has {} words", rows, words),
                        "--model " + planned.program.file(),
                        fmt::format("stage the dataset with --vocab-size {}, or export with more", rows));
    }
  }
}

/// What the program's inputs are for two samples of the dataset.
std::vector<Shape> given_shapes(const PlannedProgram& planned, const DatasetFacts& facts) {
  auto shapes = shapes_of_inputs(planned, facts, 2, facts.sample_shape);
  const auto order = named_inputs(planned, facts);
  if (order.empty()) return shapes;
  shapes.erase(shapes.begin());
  std::vector<Shape> named;
  for (const std::size_t i : order) {
    named.push_back({2});
    named.back().insert(named.back().end(), facts.inputs[i].shape.begin(), facts.inputs[i].shape.end());
  }
  shapes.insert(shapes.begin(), named.begin(), named.end());
  return shapes;
}

/// Refuses what the dataset cannot give, with both shapes.
void check_inputs(const PlannedProgram& planned, const DatasetFacts& facts) {
  const std::string subject = "--model " + planned.program.file();
  const auto& graph = planned.program.graph();
  const auto shapes = given_shapes(planned, facts);
  const auto& inputs = planned.plan.user_inputs;
  if (inputs.size() != shapes.size()) {
    std::vector<std::string> names;
    for (const ValueId input : inputs) names.push_back(printable(graph[input].name, 50));
    const char* given = shapes.size() == 1            ? "the samples"
                        : facts.task == "translation" ? "source and target"
                                                      : "the samples and their targets";
    throw usage_error(
        fmt::format("takes {} inputs ({}), and the dataset gives {}: {}", inputs.size(),
                    fmt::join(names, ", "), shapes.size(), given),
        subject,
        inputs.size() == 2 && shapes.size() == 1
            ? "use --loss model where the second one is the targets, or export a module that takes "
              "one input"
            : "export a module that takes these");
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorFacts& wanted = *graph[inputs[i]].tensor;
    if (!wanted.sizes.empty() && wanted.sizes[0].constant()) {
      throw usage_error(
          fmt::format("takes batches of {} samples only: its input {} is {}", *wanted.sizes[0].constant(),
                      printable(graph[inputs[i]].name, 50), facts_text(wanted)),
          subject,
          "export it with dynamic_shapes and Dim(\"batch\", min=2) for dim 0, as jobs/export_model.py does");
    }
    const bool texts = facts.task == "text_classification" || facts.task == "translation";
    if (texts && wanted.sizes.size() == 2 && shapes[i].size() == 2 && i < 2) {
      const auto length = wanted.sizes[1].constant().value_or(shapes[i][1]);  // shorter ones are padded
      if (length >= shapes[i][1]) continue;
      throw usage_error(
          fmt::format("takes texts of {} words, and the longest of the dataset has {}", length, shapes[i][1]),
          subject, fmt::format("stage the dataset with --max-length {}", length));
    }
    bool fits = wanted.sizes.size() == shapes[i].size();
    for (std::size_t dim = 1; fits && dim < shapes[i].size(); ++dim) {
      const auto size = wanted.sizes[dim].constant();
      fits = !size || *size == shapes[i][dim];
    }
    if (!fits) {
      throw usage_error(
          fmt::format("takes {} as its input {}, and {} of a dataset of {} are {}", facts_text(wanted),
                      printable(graph[inputs[i]].name, 50), "two samples", facts.task, shape_text(shapes[i])),
          subject, "export it with an example of such a shape, or choose another --dataset");
    }
  }
  const auto named = named_inputs(planned, facts);
  for (std::size_t i = 0; i < named.size(); ++i) {
    const bool ids = facts.inputs[named[i]].ids > 0;
    if (ids != at::isFloatingType(graph[inputs[i]].tensor->type)) continue;
    throw usage_error(fmt::format("takes {} as its input {}, and the dataset's are {}",
                                  facts_text(*graph[inputs[i]].tensor), printable(graph[inputs[i]].name, 50),
                                  ids ? "whole numbers: ids" : "real numbers"),
                      subject, "export it with an example of that type, or stage an array of the other");
  }
  if (!named.empty()) return;
  const bool words = facts.vocabulary > 0;
  const bool takes_words = !at::isFloatingType(graph[inputs[0]].tensor->type);
  if (words != takes_words) {
    throw usage_error(fmt::format("takes {}, and the samples of a dataset of {} are {}",
                                  facts_text(*graph[inputs[0]].tensor), facts.task,
                                  words ? "whole numbers: ids of words" : "real numbers"),
                      subject, "export it with an example of that type, or choose another --dataset");
  }
}

std::string remark_on_unused(const std::vector<std::string>& unused) {
  if (unused.empty()) return {};
  const bool one = unused.size() == 1;
  return fmt::format("{} {} not trained, since the first output does not depend on {}: {}{}",
                     counted(static_cast<std::int64_t>(unused.size()), "parameter tensor"),
                     one ? "is" : "are", one ? "it" : "them", printable(unused.front(), 100),
                     one ? "" : " to " + printable(unused.back(), 100));
}

/// Of a dataset of several.
std::string remark_on_inputs_not_taken(const PlannedProgram& planned, const DatasetFacts& facts) {
  const auto taken = named_inputs(planned, facts);
  std::vector<std::string> others;
  for (std::size_t i = 0; i < facts.inputs.size(); ++i) {
    if (std::ranges::find(taken, i) == taken.end()) others.push_back(printable(facts.inputs[i].name, 50));
  }
  if (others.empty()) return {};
  return fmt::format("the program does not take the dataset's {} {}", others.size() == 1 ? "input" : "inputs",
                     fmt::join(others, ", "));
}

/// Running statistics are of the run's type, whatever the file has.
std::string remark_on_rounded(const Program& program, const std::vector<std::unique_ptr<Layer>>& layers) {
  std::map<std::string, at::Tensor> held;
  for (const auto& layer : layers) {
    for (const Buffer& buffer : layer->buffers()) held.emplace(buffer.name, buffer.value);
  }
  std::vector<std::string> rounded;
  for (const auto* input : program.graph().inputs_of(GraphInput::Kind::buffer)) {
    if (!input->persistent || program.find(*input).type != at::kDouble) continue;
    const auto place = held.find(input->name);
    if (place != held.end() && !place->second.to(at::kDouble).equal(program.read(*input)))
      rounded.push_back(input->name);
  }
  if (rounded.empty()) return {};
  return fmt::format("{} running statistics of float64 begin rounded to float32: {}{}", rounded.size(),
                     printable(rounded.front(), 100),
                     rounded.size() > 1 ? " to " + printable(rounded.back(), 100) : "");
}

std::unique_ptr<Model> make(const std::string& file, const DatasetFacts& facts, const ModelOptions& options) {
  const std::string name = model_title(file);
  refuse_unknown(name, options, {});
  auto planned = std::make_shared<const PlannedProgram>(file, PlannedProgram::Dropout::as_exported);
  check_inputs(*planned, facts);
  if (planned->program.has_weights()) require_any_batch(*planned);  // a run was made with the others
  planned->program.understand([&] { check_words(*planned, facts); });
  std::unique_ptr<Model> model;
  planned->program.understand([&] {
    auto [layers, unused] = make_layers(planned);
    if (const auto named = named_inputs(*planned, facts); !named.empty())
      layers.insert(layers.begin(), unpack_inputs(facts.inputs, named));
    const auto inputs = shapes_of_inputs(*planned, facts, 2, facts.sample_shape);
    auto shapes = inputs;
    for (const auto& layer : layers) {
      layer->cost(shapes);  // every size can be computed
      shapes = layer->output_shapes(shapes);
    }
    const bool trains = std::ranges::any_of(layers, [](const auto& layer) {
      return std::ranges::any_of(layer->parameters(), [](const Parameter& one) { return !one.frozen; });
    });
    if (!trains)
      throw usage_error("has no parameter that its first output depends on", "--model " + file,
                        "export a module with parameters that require gradients");
    auto objective = make_objective(name, facts, inputs.at(0), shapes.at(0));
    std::vector<std::string> remarks = {remark_on_unused(unused), remark_on_inputs_not_taken(*planned, facts),
                                        remark_on_rounded(planned->program, layers),
                                        remark_on_sizes(*planned, facts, given_shapes(*planned, facts))};
    std::erase(remarks, "");
    model = std::make_unique<ExportedModel>(name, planned, std::move(layers), std::move(objective), facts,
                                            fmt::format("{}", fmt::join(remarks, "; ")));
  });
  return model;
}

}  // namespace

std::map<std::string, std::string> tied_names(const Model& model) {
  const auto* exported = dynamic_cast<const ExportedModel*>(&model);
  return exported == nullptr ? std::map<std::string, std::string>() : exported->tied_names();
}

Registration registration(const std::string& file) {
  return {.name = model_title(file),
          .recipe = {},
          .make = [file](const DatasetFacts& facts, const ModelOptions& options) {
            return make(file, facts, options);
          }};
}

}  // namespace dtrain::models::exported
