#include "train/replica.hpp"

#include <ATen/ATen.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "checkpoint/reader.hpp"
#include "comm/flight_recorder.hpp"
#include "parallel/agreement.hpp"
#include "parallel/gradient_buckets.hpp"
#include "parallel/reproducible_sums.hpp"
#include "train/by_rows.hpp"
#include "train/initial_weights.hpp"
#include "train/precision.hpp"

namespace dtrain::train {
namespace {

/// Room for the parameters and the optimizer's state.
parallel::NodeMemory node_memory(comm::Group& group, models::Model& model, const RunConfig& config,
                                 at::Device device) {
  const auto tensors = 1 + optimizer_config(config.optimizer).state_count();
  const auto options = at::TensorOptions().dtype(full_type(config)).device(device);
  return {group, tensors * parallel::FlatParameters::size_of(model), options};
}

parallel::BucketConfig bucket_config(const CommConfig& config, const parallel::NodeMemory& memory) {
  using Update = parallel::BucketConfig::Update;
  return {.bucket_bytes = static_cast<std::int64_t>(config.bucket_mb * 1024 * 1024),
          .algorithm = comm::parse_algorithm(config.all_reduce),
          .update = memory.shared() ? Update::parts : Update::everything};
}

std::unique_ptr<parallel::GradientSums> gradient_sums(const RunConfig& config, Job& job, comm::Group& group,
                                                      models::Model& model,
                                                      parallel::FlatParameters& parameters,
                                                      const parallel::NodeMemory& memory,
                                                      parallel::StepCapture* capture) {
  if (config.reproducible) {
    return std::make_unique<parallel::ReproducibleSums>(parameters, model, group, config.batch.micro_batches,
                                                        memory.shared());
  }
  return std::make_unique<parallel::GradientBuckets>(parameters, group, job.groups().queue(),
                                                     bucket_config(config.comm, memory), capture);
}

std::unique_ptr<parallel::ReproducibleTotals> totals(const RunConfig& config, Job& job, models::Model& model,
                                                     const parallel::FlatParameters& parameters) {
  if (!config.reproducible) return nullptr;
  return std::make_unique<parallel::ReproducibleTotals>(model, parameters, job.groups().world(),
                                                        job.groups().data(), config.batch.micro_batches,
                                                        job.speaks_for_tensor_group());
}

std::string why_no_graphs(const RunConfig& config, Job& job, const Workload& workload,
                          const Injection* injection) {
  if (workload.device.is_cpu()) return {};
  if (config.device_graphs == "off") return "--device-graphs off";
  if (job.rank_device().graphs == nullptr) return job.rank_device().no_graphs;
  if (config.mesh_shape.pipe > 1) return "ranks of a pipeline wait for each other within a step";
  if (config.mesh_shape.tensor > 1) return "ranks of the tensor axis wait for each other within a layer";
  if (workload.sample_shapes != parallel::StageMessages::SampleShapes::alike) {
    return "samples have different shapes";
  }
  if (config.reproducible) return "the gradients of micro-batches are kept apart";
  if (workload.training_loss.class_weights.defined())
    return "a step's weight depends on its samples' classes";
  return injection != nullptr ? "faults are injected" : "";
}

/// One rank does one micro-batch after the other, whatever the schedule is called.
parallel::Pipelining pipelining(const RunConfig& config) {
  return config.mesh_shape.pipe > 1 ? parallel::parse_pipelining(config.pipeline.schedule)
                                    : parallel::Pipelining::layerwise;
}

/// One range per parameter that the optimizer is to update as a whole, with the weight decay it gets.
std::vector<optim::ParameterRange> parameter_ranges(const OptimizerConfig& config,
                                                    const parallel::FlatParameters& parameters,
                                                    const models::Parameter* by_rows) {
  std::vector<optim::ParameterRange> ranges;
  for (const auto& entry : parameters.entries()) {
    if (entry.parameter == by_rows) continue;
    const bool spared = config.decay == "matrices" && entry.parameter->value.dim() < 2;
    ranges.push_back({.begin = entry.offset,
                      .end = entry.offset + entry.count,
                      .weight_decay = spared ? 0.0 : config.weight_decay});
  }
  return ranges;
}

}  // namespace

Replica::Replica(const RunConfig& config, Job& job, Workload& workload, Injection* injection, bool recovers,
                 Requests requests, StepGraphs::Tell tell_graphs)
    : config_(config),
      job_(job),
      workload_(workload),
      injection_(injection),
      data_group_(injection != nullptr ? injection->tampered(job.groups().data()) : job.groups().data()),
      preparation_(workload.dataset.info(), workload.transformation, full_type(config),
                   workload.model->goal(), workload.augmentation, workload.device, job.device_clock()),
      no_graphs_(why_no_graphs(config, job, workload, injection)),
      capture_(
          workload.device.is_cpu() || !no_graphs_.empty()
              ? nullptr
              : std::make_unique<parallel::StepCapture>(job.groups().recorder(), *job.rank_device().graphs)),
      pipeline_({.model = *workload.model,
                 .cuts = workload.cuts,
                 .pipe = job.groups().pipe(),
                 .queue = job.groups().queue(),
                 .sink = capture_ != nullptr ? static_cast<SpanSink&>(*capture_) : job.groups().recorder(),
                 .shapes = workload.sample_shapes,
                 .repeated_layers = workload.repeated_layers,
                 .device = workload.device}),
      memory_(node_memory(data_group_, *workload.model, config, workload.device)),
      parameters_(
          *workload.model, memory_.take(parallel::FlatParameters::size_of(*workload.model)),
          memory_.fills() ? parallel::FlatParameters::Values::put : parallel::FlatParameters::Values::take),
      optimizer_(optim::make_optimizer(
          optimizer_config(config.optimizer), parameters_.size(),
          parameter_ranges(config.optimizer, parameters_,
                           parameter_by_rows(config, *workload.model, workload.dataset.info().shape)),
          parameters_.values().options(), [this](std::int64_t count) { return memory_.take(count); })),
      rows_(make_row_updates(
          config, *workload.model, workload.dataset.info().shape, parameters_, *optimizer_, data_group_,
          memory_.shared() ? parallel::RowUpdates::Copies::one : parallel::RowUpdates::Copies::each)),
      gradients_(
          gradient_sums(config, job, data_group_, *workload.model, parameters_, memory_, capture_.get())),
      totals_(totals(config, job, *workload.model, parameters_)),
      control_(job.groups().world()),
      statistics_(*workload.model, data_group_, config.reproducible ? config.batch.micro_batches : 1),
      tied_(*workload.model, workload.cuts, job.groups().pipe(), *gradients_),
      undo_(recovers && rows_ == nullptr && workload.device.is_cpu()
                ? std::make_unique<parallel::StepUndo>(data_group_, parameters_, *optimizer_, *workload.model,
                                                       gradients_->update_parts(), memory_.shared())
                : nullptr),
      graphs_(capture_ != nullptr ? std::make_unique<StepGraphs>(*capture_, *workload.model, workload.device,
                                                                 std::move(tell_graphs))
                                  : nullptr),
      training_step_({.world = job.groups().world(),
                      .data = data_group_,
                      .model = *workload.model,
                      .pipeline = pipeline_,
                      .pipelining = pipelining(config),
                      .stages_per_rank = workload.cuts.stages() / workload.cuts.ranks,
                      .parameters = parameters_,
                      .gradients = *gradients_,
                      .control = control_,
                      .statistics = statistics_,
                      .tied = tied_,
                      .optimizer = *optimizer_,
                      .sink = job.groups().recorder(),
                      .half = workload.half,
                      .kernels = workload.kernels,
                      .training_loss = workload.training_loss,
                      .totals = totals_.get(),
                      .rows = rows_.get(),
                      .undo = undo_.get(),
                      .injection = injection,
                      .graphs = graphs_.get(),
                      .requests = std::move(requests),
                      .counts_common = job.speaks_for_tensor_group()},
                     config.seed, config.optimizer.grad_clip) {
  agree_on_values();
}

void Replica::agree_on_values() {
  if (memory_.shared()) {
    data_group_.barrier().wait();  // the values are there
  } else {
    parallel::broadcast_parameters(data_group_, parameters_.values());
  }
  parallel::broadcast_buffers(data_group_, *workload_.model);
  tied_.exchange_values();
}

StepOutcome Replica::step(const StepPlan& plan, parallel::SampleSource& samples) {
  auto outcome = training_step_.run(plan, samples);
  if (injection_ != nullptr && injection_->drifts()) {
    const auto buffers = workload_.model->buffers();
    (buffers.empty() ? parameters_.values() : buffers.front()->value).add_(1e-3);
  }
  return outcome;
}

parallel::Samples Replica::training_samples(const data::Batch& batch) const {
  auto inputs = preparation_.training_inputs(batch);
  auto targets = targets_of(*workload_.model, preparation_, batch, inputs);
  return {std::move(inputs), std::move(targets)};
}

void Replica::compare_copies(std::int64_t number) {
  make_current();
  auto hash = parallel::hash_of(parameters_.values());
  for (const auto* parameter : workload_.model->parameters()) {
    if (parameter->frozen) hash = hash * 1099511628211ULL ^ parallel::hash_of(parameter->value.contiguous());
  }
  for (const auto* buffer : workload_.model->buffers()) {
    hash = hash * 1099511628211ULL ^ parallel::hash_of(buffer->value.contiguous());
  }
  const auto odd = parallel::ranks_apart(data_group_, hash);
  const auto some = job_.world().max(static_cast<std::int64_t>(odd.empty() ? 0 : 1));  // also in other groups
  require(some == 0,
          odd.empty()
              ? std::string("copies of another part of the model have drifted apart")
              : fmt::format("rank{} {} hold{} other weights or statistics than the other copies",
                            odd.size() == 1 ? "" : "s", fmt::join(odd, ", "), odd.size() == 1 ? "s" : ""),
          {.subject = fmt::format("step {}", number),
           .advice = "go on from the last checkpoint, and look at that machine's memory"});
}

void Replica::make_current() {
  if (rows_) rows_->flush();
}

TrainingState Replica::state() {
  make_current();
  return {parameters_, *workload_.model, *optimizer_};
}

TrainingState Replica::take_back(std::int64_t number) {
  undo_->take_back(number);
  scaler().take_back(number);
  return {parameters_, *workload_.model, *optimizer_};
}

void Replica::load_weights(const std::filesystem::path& folder, h5::Library& library) {
  const auto weights = checkpoint::open_weights(folder, library, checkpoint::Verify::manifest);
  train::load_weights(
      *weights,
      {.model = *workload_.model, .dataset = config_.data.dataset, .vocabulary = workload_.vocabulary}, "",
      folder.string());
  agree_on_values();
}

void Replica::load_optimizer(const std::filesystem::path& folder, h5::Library& library) {
  train::load_optimizer(checkpoint::load(folder, library, checkpoint::Verify::manifest), parameters_,
                        *optimizer_);
  data_group_.barrier().wait();  // where the ranks of a node share it
}

}  // namespace dtrain::train
