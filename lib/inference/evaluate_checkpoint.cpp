#include "inference/evaluate_checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/manifest.hpp"
#include "core/error.hpp"
#include "inference/output_rows.hpp"
#include "record/predictions_file.hpp"
#include "state/kept_program.hpp"
#include "state/transformations.hpp"
#include "train/config/precision.hpp"
#include "train/setup/job.hpp"
#include "train/setup/preparation.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::inference {
namespace {

/// The model's own figures, and up to twenty classes which of them it takes for which.
void print_scores(const models::Model& model, const std::vector<std::string>& names,
                  const train::EvaluationResult& result, const Log& log) {
  const auto columns = model.extra_columns();
  std::vector<std::string> figures;
  for (std::size_t k = 0; k < columns.columns.size(); ++k) {
    std::string name = columns.columns[k].name;
    if (name.starts_with("validation_")) name.erase(0, std::string_view("validation_").size());
    figures.push_back(fmt::format("{} {:.4f}", name, result.extra.at(k)));
  }
  if (!figures.empty()) log.info(fmt::format("figures     {}", fmt::join(figures, ", ")));
  const auto classes = static_cast<std::size_t>(columns.confusion_classes);
  constexpr std::size_t kMostPrinted = 20;
  if (classes == 0 || classes > kMostPrinted) return;
  log.info("confusion   each row: samples of a class, by the class that the model says");
  for (std::size_t row = 0; row < classes; ++row) {
    std::string line;
    for (std::size_t k = 0; k < classes; ++k)
      line += fmt::format(" {:>6}", result.confusion.at(row * classes + k));
    log.info(fmt::format("  {:<16}{}", row < names.size() ? names[row] : std::to_string(row), line));
  }
}

std::vector<std::string> splits_with_samples(const data::DatasetInfo& info) {
  std::vector<std::string> names;
  for (const char* split : {"train", "validation", "test"}) {
    if (info.samples(split) > 0) names.emplace_back(split);
  }
  return names;
}

}  // namespace

train::EvaluationResult evaluate_checkpoint(const train::RunConfig& config, const EvaluateRequest& request,
                                            comm::MpiEnvironment& mpi, const Log& log) {
  NullSpanSink sink;
  h5::Library library;
  train::Job job(config, mpi, sink);
  auto workload = train::make_workload(config, train::place_of(job), library);
  const auto& info = workload.dataset.info();
  const auto samples = info.samples(request.split);
  require(samples > 0, fmt::format("has no samples in the split {}", request.split),
          {.subject = info.name,
           .advice = fmt::format("use --split {}", fmt::join(splits_with_samples(info), " or ")),
           .code = ExitCode::data});

  const bool keeps = !request.predictions.empty();
  const bool words = info.task == "language_modelling" || info.task == "translation";
  const bool shares_words = words && !models::is_program_file(config.model.name);
  require(!keeps || !shares_words || config.mesh_shape.tensor == 1,
          "each rank of the tensor axis has a part of the words",
          {.subject = "--predictions",
           .advice = "use a --mesh without tensor, or leave it out",
           .code = ExitCode::usage});
  const auto trained = checkpoint::read_manifest(config.model.init_from).info;
  state::check_same_program(trained.program, *workload.model, config.model.init_from);
  state::check_same_classes(trained.identity, info, config.model.init_from);
  state::check_same_targets(trained.identity, info, config.model.init_from);
  const auto how = state::transformation_as_trained(trained.transformations, info, config.model.init_from);
  if (const auto own = state::own_transformation(info);
      how.mean != own.mean || how.std_dev != own.std_dev || !how.factor.empty()) {
    log.info(
        fmt::format("inputs      made with what the checkpoint's training data were made with, not with "
                    "{}'s own",
                    info.name));
  }
  const train::Preparation preparation(info, how, train::full_type(config), workload.model->goal(),
                                       std::nullopt, workload.device);
  auto& group = job.groups().data();
  parallel::Pipeline pipeline(train::evaluation_pipeline(job, workload, sink));
  train::Evaluation evaluation(train::evaluation_parts(job, workload, pipeline, preparation),
                               data::Loader(workload.dataset, request.split, {}, workload.read), samples,
                               workload.evaluation_batch);
  job.end_preparation();
  OutputRows rows("--predictions");
  const auto result =
      evaluation.run(keeps ? train::OutputSink([&](const train::BatchOutputs& batch) { rows.take(batch); })
                           : train::OutputSink());
  std::string line = fmt::format("{} of {}: loss {:.4f}", request.split, info.name, result.total.loss);
  if (workload.scoring == train::Scoring::loss_and_accuracy)
    line += fmt::format(", accuracy {:.4f}", result.total.accuracy);
  log.info(line + fmt::format(", {} samples in {:.2f} s", samples, result.time_s));
  print_scores(*workload.model, info.classes, result, log);
  if (keeps) {
    const comm::LongPhase writing(job.world(), config.files_limit_s());
    if (pipeline.is_last() && job.speaks_for_tensor_group()) {
      auto predictions = rows.gather(group, samples);
      if (info.task == "regression") {
        preparation.give_units(predictions.outputs);
        preparation.give_units(predictions.targets);
      }
      predictions.model = models::model_title(config.model.name);
      predictions.dataset = info.name;
      predictions.split = request.split;
      if (workload.scoring == train::Scoring::loss_and_accuracy) predictions.classes = info.classes;
      predictions.target_names = info.targets;
      if (group.rank() == 0) record::write_predictions(request.predictions, predictions, library);
    }
    log.info(fmt::format("predictions  {}", request.predictions));
    job.world().barrier();
  }
  return result;
}

}  // namespace dtrain::inference
