#include "train/inference/evaluate_checkpoint.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/manifest.hpp"
#include "core/error.hpp"
#include "record/predictions_file.hpp"
#include "train/config/precision.hpp"
#include "train/setup/job.hpp"
#include "train/setup/kept_program.hpp"
#include "train/setup/preparation.hpp"
#include "train/setup/transformations.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {
namespace {

constexpr std::int64_t kLargestRow = 1 << 20;

/// This rank's rows, batch after batch.
class Collector {
 public:
  void take(const BatchOutputs& batch) {
    const at::Tensor& outputs = batch.outputs.at(0);
    require(outputs.size(0) == static_cast<std::int64_t>(batch.batch.samples.size()) &&
                outputs.numel() / std::max<std::int64_t>(outputs.size(0), 1) <= kLargestRow,
            "this model gives no output of one size per sample",
            {.subject = "--predictions", .advice = "leave it out", .code = ExitCode::usage});
    append(own_.outputs, own_.output_shape, outputs);
    append(own_.targets, own_.target_shape, batch.targets);
    if (batch.codes.defined()) append(own_.codes, own_.code_shape, batch.codes);
  }

  /// All ranks' rows on rank 0, in the order of the samples; elsewhere this rank's. Collective.
  record::Predictions gather(comm::Group& group, std::int64_t samples) {
    // A rank without samples has not seen the shapes; every rank knows how many rows the others have.
    join(group, own_.outputs, own_.output_shape, samples);
    join(group, own_.targets, own_.target_shape, samples);
    join(group, own_.codes, own_.code_shape, samples);
    own_.samples = samples;
    return std::move(own_);
  }

 private:
  template <class T>
  static void append(std::vector<T>& rows, std::vector<std::int64_t>& shape, const at::Tensor& values) {
    shape.assign(values.sizes().begin() + 1, values.sizes().end());
    const auto dense = values.cpu().to(c10::CppTypeToScalarType<T>::value).contiguous();
    const T* const first = dense.template const_data_ptr<T>();
    rows.insert(rows.end(), first, first + dense.numel());
  }

  template <class T>
  static void join(comm::Group& group, std::vector<T>& rows, const std::vector<std::int64_t>& shape,
                   std::int64_t samples) {
    std::int64_t width = 1;
    for (const auto extent : shape) width *= extent;
    if (rows.empty()) width = 0;
    group.all_reduce(comm::Buffer::of(std::span(&width, 1)), comm::ReduceOp::max).wait();
    if (width == 0) return;
    if (group.rank() != 0) {
      group.send(comm::Buffer::of(std::span(rows)), 0).wait();
      return;
    }
    rows.resize(static_cast<std::size_t>(samples * width));
    for (int rank = 1; rank < group.size(); ++rank) {
      const Range part = part_of(samples, rank, group.size());
      const std::span<T> theirs(rows.data() + part.begin * width,
                                static_cast<std::size_t>(part.size() * width));
      group.receive(comm::Buffer::of(theirs), rank).wait();
    }
  }

  record::Predictions own_;
};

/// The model's own figures, and up to twenty classes which of them it takes for which.
void print_scores(const models::Model& model, const std::vector<std::string>& names,
                  const EvaluationResult& result, const Log& log) {
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

}  // namespace

EvaluationResult evaluate_checkpoint(const RunConfig& config, const EvaluateRequest& request,
                                     comm::MpiEnvironment& mpi, const Log& log) {
  NullSpanSink sink;
  h5::Library library;
  Job job(config, mpi, sink);
  auto workload = make_workload(config, place_of(job), library);
  const auto& info = workload.dataset.info();
  const auto samples = info.samples(request.split);
  require(samples > 0, fmt::format("has no samples in the split {}", request.split),
          {.subject = info.name, .advice = "use --split train, validation or test", .code = ExitCode::data});

  const auto trained = checkpoint::read_manifest(config.model.init_from).info;
  check_same_program(trained.program, *workload.model, config.model.init_from);
  check_same_classes(trained.identity, info, config.model.init_from);
  const auto how = transformation_as_trained(trained.transformations, info, config.model.init_from);
  if (const auto own = own_transformation(info);
      how.mean != own.mean || how.std_dev != own.std_dev || !how.factor.empty()) {
    log.info(
        fmt::format("inputs      made with what the checkpoint's training data were made with, not with "
                    "{}'s own",
                    info.name));
  }
  const Preparation preparation(info, how, full_type(config), workload.model->goal(), std::nullopt,
                                workload.device);
  auto& group = job.groups().data();
  parallel::Pipeline pipeline({.model = *workload.model,
                               .cuts = workload.cuts,
                               .pipe = job.groups().pipe(),
                               .queue = job.groups().queue(),
                               .sink = sink,
                               .shapes = workload.sample_shapes,
                               .device = workload.device});
  Evaluation evaluation(evaluation_parts(job, workload, pipeline, preparation),
                        data::Loader(workload.dataset, request.split, {}, workload.read), samples,
                        workload.evaluation_batch);
  job.end_preparation();
  Collector collector;
  const bool keeps = !request.predictions.empty();
  const auto result = evaluation.run(
      keeps ? OutputSink([&](const BatchOutputs& batch) { collector.take(batch); }) : OutputSink());
  std::string line = fmt::format("{} of {}: loss {:.4f}", request.split, info.name, result.total.loss);
  if (workload.scoring == Scoring::loss_and_accuracy)
    line += fmt::format(", accuracy {:.4f}", result.total.accuracy);
  log.info(line + fmt::format(", {} samples in {:.2f} s", samples, result.time_s));
  print_scores(*workload.model, info.classes, result, log);
  if (keeps) {
    const comm::LongPhase writing(job.world(), config.comm.files_limit_s());
    if (pipeline.is_last() && job.speaks_for_tensor_group()) {
      auto predictions = collector.gather(group, samples);
      predictions.model = models::model_title(config.model.name);
      predictions.dataset = info.name;
      predictions.split = request.split;
      predictions.classes = info.classes;
      if (group.rank() == 0) record::write_predictions(request.predictions, predictions, library);
    }
    log.info(fmt::format("predictions  {}", request.predictions));
    job.world().barrier();
  }
  return result;
}

}  // namespace dtrain::train
