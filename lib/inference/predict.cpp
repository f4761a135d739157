#include "inference/predict.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "checkpoint/manifest.hpp"
#include "comm/watch/shared_failure.hpp"
#include "core/checked_bytes.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/printable.hpp"
#include "core/shared_failure.hpp"
#include "data/formats/dates.hpp"
#include "data/shards/vocabulary_hash.hpp"
#include "inference/output_rows.hpp"
#include "record/predictions_csv.hpp"
#include "record/predictions_file.hpp"
#include "state/transformations.hpp"
#include "train/config/precision.hpp"
#include "train/loop/evaluation.hpp"
#include "train/setup/job.hpp"
#include "train/setup/preparation.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::inference {
namespace {

constexpr std::int64_t kMostSampleBytes = std::int64_t{1} << 40;

/// Throws Error (exit code 4) where the facts contradict each other.
void check_facts(const data::DatasetInfo& info, const std::string& checkpoint) {
  const ErrorContext context{
      .subject = checkpoint, .advice = "take another checkpoint", .code = ExitCode::checkpoint};
  const bool images = info.task == "image_classification";
  require(!info.shape.empty() && std::ranges::all_of(info.shape, [](auto extent) { return extent >= 1; }) &&
              checked_bytes(info.shape, sizeof(double), kMostSampleBytes).has_value() &&
              (!images || info.shape.size() == 3),
          "says that its samples had a shape that cannot be", context);
  require(info.columns.empty() || std::vector{static_cast<std::int64_t>(info.columns.size())} == info.shape,
          "says that its samples had other columns than inputs", context);
  require(std::ranges::all_of(
              info.columns,
              [](const auto& column) { return column.part.empty() || data::is_date_part(column.part); }),
          "has a column with a part of dates that this dtrain does not know", context);
  require(info.mean.size() == info.std_dev.size() &&
              (info.mean.empty() || static_cast<std::int64_t>(info.mean.size()) == info.shape[0]),
          "has another number of means than its images had channels", context);
  require(info.targets.empty() || info.task == "regression",
          "says that its samples had several targets, and was trained for " + info.task, context);
  require(info.target_scales.empty() ||
              (info.task == "regression" &&
               static_cast<std::int64_t>(info.target_scales.size()) == info.target_count()),
          "says that it scaled another number of targets than its samples had", context);
  const auto places = [](const std::vector<std::int64_t>& shape) {
    return std::ranges::all_of(shape, [](auto extent) { return extent >= 1; }) &&
           checked_bytes(shape, sizeof(double), kMostSampleBytes).has_value();
  };
  std::int64_t elements = 0;
  for (const auto& input : info.inputs) {
    require(places(input.shape) && input.ids >= 0, "says that an input had a shape that cannot be", context);
    elements += checked_bytes(input.shape, 1, kMostSampleBytes).value();
  }
  require(info.inputs.empty() || info.shape == std::vector{elements},
          "says that its samples had other inputs than numbers", context);
  require(info.target_shape.empty() ||
              (info.target_shape.size() == 2 && places(info.target_shape) && !info.classes.empty()),
          "says that its targets had a shape that cannot be", context);
  require(info.classes.empty() == !info.task.ends_with("classification"),
          "does not say which classes it knows", context);
}

/// The vocabulary is too large for each checkpoint to keep: it comes from the dataset.
data::DatasetInfo info_of_text(const train::RunConfig& config, const checkpoint::CheckpointInfo& trained) {
  require(config.data.dataset != "synthetic", "was trained on synthetic text, which has no words",
          {.subject = config.model.init_from, .advice = "train on words", .code = ExitCode::usage});
  auto info = data::read_dataset_info(data::find_dataset(config.data.dataset, config.data.root));
  state::check_same_classes(trained.identity, info, config.model.init_from);
  require(info.task == trained.identity.task && info.tokenizer.has_value(),
          fmt::format("was trained on samples of {}, and the dataset {} has samples of {}",
                      trained.identity.task, info.name, info.task),
          {.subject = config.model.init_from,
           .advice = "name the dataset of its training with --dataset",
           .code = ExitCode::checkpoint});
  const auto& vocabulary = trained.vocabulary.all;
  require(vocabulary.empty() || vocabulary == data::vocabulary_hash(info),
          "was trained with another vocabulary than that of the dataset " + info.name,
          {.subject = config.model.init_from,
           .advice = "name the dataset of its training with --dataset",
           .code = ExitCode::checkpoint});
  return info;
}

/// What the samples of the training were like.
data::DatasetInfo info_of_training(const train::RunConfig& config,
                                   const checkpoint::CheckpointInfo& trained) {
  const auto& checkpoint = config.model.init_from;
  require(trained.transformations.has_value() && !trained.identity.task.empty(),
          "is from before checkpoints kept what their inputs were made with",
          {.subject = checkpoint,
           .advice = "train it further with --resume, or stage the data and use dtrain evaluate",
           .code = ExitCode::checkpoint});
  if (trained.identity.task == "text_classification") return info_of_text(config, trained);
  auto info = state::samples_of_training(trained.identity, *trained.transformations);
  const bool single = info.task != "language_modelling" && info.task != "translation";
  if (single) check_facts(info, checkpoint);
  return info;
}

/// Each rank reads all samples. Collective, so that no rank waits for one that failed.
data::Unlabelled read_together(const data::DatasetInfo& info, const PredictRequest& request, train::Job& job,
                               h5::Library& library, double limit_s) {
  const comm::LongPhase reading(job.world(), limit_s);
  std::optional<data::Unlabelled> found;
  const auto failure = failure_of([&] { found = data::read_unlabelled(info, request.data, library); });
  comm::throw_on_all(failure, train::place_of(job).host, job.world());
  return std::move(*found);
}

}  // namespace

void predict(const train::RunConfig& config, const PredictRequest& request, comm::MpiEnvironment& mpi,
             const Log& log) {
  NullSpanSink sink;
  h5::Library library;
  train::Job job(config, mpi, sink);
  const auto trained = checkpoint::read_manifest(config.model.init_from).info;
  const auto info = info_of_training(config, trained);
  require(info.target_shape.empty() || request.output.ends_with(".h5"),
          "was trained on a class for each place, which a table has no cells for",
          {.subject = config.model.init_from, .advice = "use --output OUT.h5", .code = ExitCode::usage});
  auto data = read_together(info, request, job, library, config.files_limit_s());
  for (const auto& remark : data.remarks) log.info(fmt::format("note        {}", remark));

  auto workload = train::make_workload(config, train::place_of(job), library, data.dataset);
  const state::InputTransformation how{.mean = trained.transformations->mean,
                                       .std_dev = trained.transformations->std_dev,
                                       .targets = trained.transformations->targets};
  const train::Preparation preparation(info, how, train::full_type(config), workload.model->goal(),
                                       std::nullopt, workload.device);
  auto& group = job.groups().data();
  parallel::Pipeline pipeline(train::evaluation_pipeline(job, workload, sink));
  train::Evaluation evaluation(train::evaluation_parts(job, workload, pipeline, preparation),
                               data::Loader(workload.dataset, "train", {}, workload.read), data.samples,
                               workload.evaluation_batch);
  job.end_preparation();
  OutputRows rows("predict");
  const double start_s = steady_s();
  std::int64_t odd = 0;  // batches
  evaluation.run([&](const train::BatchOutputs& batch) {
    rows.take(batch);
    const at::Tensor& outputs = batch.outputs.at(0);
    const auto said = info.classes.empty() ? outputs : at::softmax(outputs, 1);  // -inf: never this class
    odd += at::isfinite(said).all().item<bool>() ? 0 : 1;
  });
  require(
      job.world().max(odd) == 0, "gives outputs that are no numbers",
      {.subject = config.model.init_from, .advice = "take a checkpoint from before its training diverged"});
  log.info(fmt::format("{} samples in {:.2f} s", data.samples, steady_s() - start_s));

  const comm::LongPhase writing(job.world(), config.files_limit_s());
  if (pipeline.is_last() && job.speaks_for_tensor_group()) {
    auto predictions = rows.gather(group, data.samples);
    if (info.task == "regression") preparation.give_units(predictions.outputs);
    predictions.model = config.model.name;
    predictions.dataset = trained.dataset;
    predictions.split = request.data.from.string();
    predictions.names = data.names;
    predictions.targets.clear();
    if (workload.scoring == train::Scoring::loss_and_accuracy) predictions.classes = info.classes;
    predictions.target_names = info.targets;
    if (group.rank() == 0 && request.output.ends_with(".csv"))
      record::write_predictions_csv(request.output, predictions);
    else if (group.rank() == 0)
      record::write_predictions(request.output, predictions, library);
  }
  log.info(fmt::format("predictions {}", printable(request.output)));
  job.world().barrier();
}

}  // namespace dtrain::inference
