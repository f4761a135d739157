#include "data/synthetic/synthetic.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "data/import/statistics.hpp"
#include "data/sample_sources.hpp"
#include "data/synthetic/synthetic_columns.hpp"

namespace dtrain::data {

const std::vector<std::string>& synthetic_tasks() {
  static const std::vector<std::string> kTasks = {"image_classification", "table_classification",
                                                  "regression",           "text_classification",
                                                  "translation",          "language_modelling"};
  return kTasks;
}

std::vector<std::int64_t> SyntheticSpec::sample_shape() const {
  if (!shape.empty()) return shape;
  if (task == "image_classification") return {1, 28, 28};
  if (task == "text_classification") return {24};
  if (task == "translation") return {12};
  if (task == "language_modelling") return {64};
  return {32};
}

void SyntheticSpec::validate() const {
  const auto& tasks = synthetic_tasks();
  if (std::find(tasks.begin(), tasks.end(), task) == tasks.end()) {
    std::string list;
    for (const std::string& name : tasks) list += (list.empty() ? "" : ", ") + name;
    throw usage_error("there is no synthetic set for the task '" + task + "'", "--dataset synthetic",
                      "choose one of: " + list);
  }
  const auto expect = [](bool holds, const char* problem) {
    require(holds, problem, {.subject = "--dataset synthetic", .code = ExitCode::usage});
  };
  const std::vector<std::int64_t> dims = sample_shape();
  expect(std::all_of(dims.begin(), dims.end(), [](std::int64_t n) { return n >= 1; }),
         "a dim of the shape is below 1");
  expect(task != "image_classification" || dims.size() == 3, "images need a shape [C, H, W]");
  expect(layout_of_task(task) == SampleLayout::dense || dims.size() == 1, "text needs a shape [T]");
  expect(classes >= 1, "classes are below 1");
  expect(vocabulary >= 8, "the vocabulary is below 8");
  expect(train_samples >= 1 && validation_samples >= 0 && test_samples >= 0, "the training split is empty");
}

Originals synthetic_originals(const SyntheticSpec& spec) {
  spec.validate();
  Originals made;
  made.task = spec.task;
  made.shape = spec.sample_shape();
  if (spec.task == "image_classification" || spec.task == "table_classification" ||
      spec.task == "text_classification")
    for (std::int64_t name = 0; name < spec.classes; ++name) made.classes.push_back(std::to_string(name));
  if (layout_of_task(spec.task) != SampleLayout::dense) {
    TokenizerInfo tokenizer{.kind = "synthetic", .vocabulary = {"<pad>", "<unk>", "<start>", "<end>"}};
    for (std::int64_t id = 4; id < spec.vocabulary; ++id)
      tokenizer.vocabulary.push_back(fmt::format("w{}", id));
    if (spec.task == "translation") tokenizer.target_vocabulary = tokenizer.vocabulary;
    made.tokenizer = std::move(tokenizer);
  }
  // The splits are ranges of one endless set, so they share its classes and rules but no sample.
  std::int64_t first = 0;
  for (const auto& [split, samples] : {std::pair{"train", spec.train_samples},
                                       {"validation", spec.validation_samples},
                                       {"test", spec.test_samples}}) {
    if (samples > 0) made.splits[split] = synthetic_columns(spec, first, samples);
    first += samples;
  }
  return made;
}

Dataset synthetic_dataset(const SyntheticSpec& spec) {
  const Originals made = synthetic_originals(spec);
  DatasetInfo info{.name = "synthetic",
                   .task = made.task,
                   .classes = made.classes,
                   .shape = made.shape,
                   .tokenizer = made.tokenizer,
                   .seed = spec.seed};
  std::map<std::string, std::shared_ptr<const SampleSource>> sources;
  for (const auto& [split, columns] : made.splits) {
    sources[split] = make_source(made.task, {columns}, made.shape, "synthetic, split " + split);
    info.splits[split].samples = sources[split]->samples();
  }
  if (layout_of_task(made.task) == SampleLayout::dense) {
    const ChannelStatistics statistics = channel_statistics(*made.splits.at("train")[0], made.shape);
    info.mean = statistics.mean;
    info.std_dev = statistics.std_dev;
  }
  return {std::move(info), std::move(sources)};
}

}  // namespace dtrain::data
