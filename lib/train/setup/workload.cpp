#include "train/setup/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <regex>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/weights.hpp"
#include "comm/watch/shared_failure.hpp"
#include "core/error.hpp"
#include "core/printable.hpp"
#include "core/shared_failure.hpp"
#include "data/class_weights.hpp"
#include "data/placement/staging.hpp"
#include "data/shards/vocabulary_hash.hpp"
#include "data/synthetic/synthetic.hpp"
#include "models/exported/golden.hpp"
#include "parallel/gradients/compression/gradient_compression.hpp"
#include "parallel/memory/memory_meter.hpp"
#include "parallel/pipeline/layer_times.hpp"
#include "parallel/step/pieces.hpp"
#include "state/initial_weights.hpp"
#include "state/resume_point.hpp"
#include "train/config/federated_setting.hpp"
#include "train/config/footprint.hpp"
#include "train/config/precision.hpp"
#include "train/setup/target_places.hpp"

namespace dtrain::train {
namespace {

constexpr std::string_view kLocal = "local=";

/// The synthetic dataset that stands for the one a model is usually trained on.
data::SyntheticSpec synthetic_for(const models::Registration& model, const models::ModelOptions& options,
                                  std::uint64_t seed) {
  data::SyntheticSpec spec{.seed = seed};
  if (model.recipe.dataset == "cifar10") spec.shape = {3, 32, 32};
  if (model.recipe.dataset == "imdb") {
    spec.task = "text_classification";
    spec.vocabulary = 2000;  // so many that a step uses few of them
  }
  if (model.recipe.dataset == "multi30k") {
    spec.task = "translation";
    spec.shape = {8};  // short sentences of few words: learnt in seconds without attention
    spec.vocabulary = 20;
  }
  if (model.recipe.dataset == "tinyshakespeare") spec.task = "language_modelling";
  const auto text = model.text != nullptr ? model.text(options) : models::TextSizes{};
  if (text.vocabulary > 0) spec.vocabulary = text.vocabulary;
  if (text.tokens > 0) spec.shape = {text.tokens};
  return spec;
}

/// Whether this rank has to check all of a checkpoint that weights are taken from: not where that is done, or
/// all ranks share it. Collective.
checkpoint::Verify check_weights(const ModelConfig& model, const comm::Communicator* world) {
  if (model.init_is_checked) return checkpoint::Verify::manifest;
  if (world == nullptr) return checkpoint::Verify::everything;
  std::error_code ignored;
  const bool is_checkpoint = std::filesystem::is_directory(model.init_from, ignored);
  if (world->max(static_cast<std::int64_t>(is_checkpoint)) == 0) return checkpoint::Verify::everything;
  state::check_together(model.init_from, *world);
  return checkpoint::Verify::manifest;
}

data::LocalCopy open_here(const RunConfig& config, const data::NodeTeam& team, h5::Library& library) {
  auto dataset = data::Dataset::open(data::find_dataset(config.data.dataset, config.data.root), library);
  if (config.data.staging.starts_with(kLocal)) {
    const data::LockPatience patience{.say = [](const std::string& what) {
      std::cerr << "dtrain: --staging: " << printable(what) << std::endl;
    }};
    return data::copy_to_local(dataset, config.data.staging.substr(kLocal.size()), team, library, patience);
  }
  return {std::move(dataset), ""};
}

data::LocalCopy open_dataset(const RunConfig& config, const WorkloadPlace& place, h5::Library& library) {
  if (config.data.dataset == "synthetic") {
    return {data::synthetic_dataset(
                synthetic_for(models::find_model(config.model.name), config.model.options, config.seed)),
            ""};
  }
  if (place.world == nullptr) return open_here(config, place.team, library);
  std::optional<data::LocalCopy> opened;
  const auto failure = failure_of([&] { opened = open_here(config, place.team, library); });
  if (failure && failure->code() == ExitCode::lost_rank) throw Error(*failure);  // no rank left to agree with
  comm::throw_on_all(failure, place.host, *place.world);
  return std::move(*opened);
}

/// The golden batch of a model's file is computed by rank 0 alone. Collective. Returns what to say of it.
std::string replayed_golden_batch(const RunConfig& config, const WorkloadPlace& place) {
  const auto& model = config.model;
  if (!models::is_program_file(model.name) || model.golden != "on" || model.init_is_checked) return {};
  std::string line;
  const auto failure = failure_of([&] {
    const parallel::MemoryMeter::Uncounted before_the_run;  // --memory-limit is of training
    if (place.world == nullptr || place.world->rank() == 0) line = models::exported::check_golden(model.name);
  });
  if (place.world != nullptr) {
    comm::throw_on_all(failure, place.host, *place.world);
  } else if (failure) {
    throw Error(*failure);
  }
  return line;
}

/// What `--augment` means on this dataset. By recipe it is silently nothing where there are no images.
std::optional<Augmentation> augmentation_of(const RunConfig& config, const data::DatasetInfo& info) {
  const auto& data = config.data;
  const bool images = info.task == "image_classification";
  const bool wanted = data.augment != "off";
  const ErrorContext context{.subject = "--augment " + data.augment,
                             .advice = "use off, or another --dataset",
                             .code = ExitCode::usage};
  require(images || !wanted || !config.given.contains("augment"),
          "there are no images to crop or flip in a dataset of " + info.task, context);
  const bool places = !info.target_shape.empty();
  require(!places || !wanted || !config.given.contains("augment"),
          "crops and flips would move the images and leave the targets of their pixels", context);
  if (!images || places || !wanted) return std::nullopt;
  const auto extent = std::min(info.shape.at(1), info.shape.at(2));
  require(!data.crops() || data.augment_padding < extent,
          fmt::format("{} zeros on each side are as many as an image of {} x {} has pixels",
                      data.augment_padding, info.shape.at(1), info.shape.at(2)),
          {.subject = "--augment-padding",
           .advice = fmt::format("use {} or fewer, or --augment flip", extent - 1),
           .code = ExitCode::usage});
  const auto samples = info.samples("train");
  const parallel::Pieces epoch{.samples = samples, .global_batch = samples_of_step(config, samples)};
  return Augmentation{.seed = config.seed,
                      .steps_per_epoch = epoch.steps(),
                      .padding = data.crops() ? data.augment_padding : 0,
                      .flips = data.flips() ? kernels::Flips::at_random : kernels::Flips::never};
}

/// Seconds per layer as rank 0 measures them on its device.
std::vector<double> measured_costs(const RunConfig& config, models::Model& model,
                                   const std::vector<models::Shape>& inputs, std::int64_t vocabulary,
                                   const WorkloadPlace& place) {
  std::vector<double> costs(model.layers().size());
  if (place.world->rank() == 0) {
    costs = parallel::measure_layers(model, inputs,
                                     {.vocabulary = vocabulary,
                                      .type = full_type(config),
                                      .half = half_type(config),
                                      .kernels = kernels_of(config),
                                      .reproducible = config.reproducible,
                                      .seed = config.seed,
                                      .device = place.device});
  }
  place.world->broadcast_bytes(std::as_writable_bytes(std::span(costs)), 0);
  return costs;
}

/// How many first layers of each stage run again in backward. The ranks of a tensor group decide alike,
/// whatever each holds: the layers that run again exchange sums. Collective. Throws Error as
/// plan::repeated_layers() does.
std::int64_t repeated_alike(const RunConfig& config, const plan::Footprint& footprint,
                            const models::Model& model, const parallel::StageCuts& cuts,
                            const WorkloadPlace& place, const models::Shape& sample_shape) {
  const auto here = [&] {
    return plan::repeated_layers(recompute_of(config), footprint, model, cuts, place.pipe_index,
                                 sample_shape);
  };
  if (config.mesh_shape.tensor == 1 || place.world == nullptr) return here();
  std::int64_t repeated = 0;
  std::optional<Error> failure;
  try {
    repeated = here();
  } catch (const Error& error) {
    failure = error;
  }
  comm::throw_on_all(failure, place.host, *place.world);
  std::int64_t most = 0;
  for (int pipe = 0; pipe < cuts.ranks; ++pipe) {
    const bool is_here = pipe == place.pipe_index;
    const auto of_all = place.world->max(is_here ? repeated : std::int64_t{0});
    if (is_here) most = of_all;
  }
  return most;
}

/// Ids below it are words in each text of a sample; 0: there is no text.
std::int64_t ids_of_texts(const data::DatasetInfo& info) {
  if (!info.tokenizer) return 0;
  const auto words = std::ssize(info.tokenizer->vocabulary);
  const auto target_words = std::ssize(info.tokenizer->target_vocabulary);
  return target_words > 0 ? std::min(words, target_words) : words;
}

/// What is held where there are no activations, on the rank of the pipeline that holds most.
double most_held(const plan::Footprint& footprint, const models::Model& model,
                 const parallel::StageCuts& cuts, const models::Shape& sample) {
  double most = 0;
  for (int pipe = 0; pipe < cuts.ranks; ++pipe)
    most = std::max(most, plan::estimate_memory(footprint, model, cuts, pipe, sample, 0).apart);
  return most + plan::evaluation_beside(footprint, model);
}

struct CutModel {
  parallel::StageCuts cuts;
  std::vector<double> costs;  // of each layer, in one unit
};

/// Whether two stages may share a layer. Not where layers move later, or tensor ranks share them already, or
/// sums have the same bits on any ranks, or layers are counted, or what compression left out of a gradient is
/// kept for a whole tensor. And where no micro-batch is to spare, even stages are slower: each waits whenever
/// the other takes a little longer.
bool cuts_within_layers(const RunConfig& config, const models::Model& model) {
  const auto pipelining = parallel::parse_pipelining(config.pipeline.schedule);
  const bool spares = pipelining == parallel::Pipelining::eager || pipelining == parallel::Pipelining::gpipe;
  return spares && config.mesh_shape.pipe > 1 && config.mesh_shape.tensor == 1 && !balances_stages(config) &&
         !config.reproducible && !model.code_layer() && !config.computes_on_device() &&
         !parallel::CompressionChoice::parse(config.strategy_options.compression).keeps_error();
}

CutModel cut_model(const RunConfig& config, models::Model& model, const data::DatasetInfo& info,
                   parallel::Computed computed, const WorkloadPlace& place) {
  const int pipe = config.mesh_shape.pipe;
  const int stages = pipe > 1 ? config.stages_per_rank() : 1;
  const auto inputs = model.input_shapes(samples_of_largest_piece(config.batch), info.shape);
  auto costs = parallel::work_of_layers(model, inputs, computed);
  auto cuts = parallel::cut_stages(costs, pipe, stages, model.name());  // refuses before it measures
  if (cuts_within_layers(config, model)) {
    cuts = parallel::cut_within_layers(model, inputs, pipe, computed);
    return {std::move(cuts), parallel::work_of_layers(model, inputs, computed)};
  }
  if (!balances_stages(config) || config.dry_run || place.world == nullptr)
    return {std::move(cuts), std::move(costs)};
  const auto& earlier = config.pipeline.measured;
  const bool known = earlier.layers.size() == costs.size() && std::ssize(earlier.slowness) == pipe;
  costs = known ? earlier.layers : measured_costs(config, model, inputs, ids_of_texts(info), place);
  cuts = parallel::cut_stages(costs, pipe, stages, model.name(),
                              known ? earlier.slowness : std::vector<double>());
  return {std::move(cuts), std::move(costs)};
}

/// Takes what `--freeze` names out of the training. Returns how much that is, in words.
std::string freeze(const RunConfig& config, models::Model& model) {
  const std::string& text = config.model.freeze;
  if (text.empty()) return {};
  const std::string subject = "--freeze " + text;
  std::regex expression;
  try {
    expression = std::regex(text);
  } catch (const std::regex_error&) {
    throw usage_error("is not a regular expression", subject, "write one such as '^features' in quotes");
  }
  const auto names =
      model.freeze([&](const std::string& name) { return std::regex_search(name, expression); });
  std::vector<std::string> all;
  for (const auto& layer : model.layers()) {
    for (const auto& parameter : layer->parameters()) all.push_back(parameter.name);
  }
  require(!names.empty(), "matches no parameter of the model " + model.name(),
          {.subject = subject,
           .advice = fmt::format("the first is {}, the last {}", all.front(), all.back()),
           .code = ExitCode::usage});
  require(names.size() < all.size(), "leaves nothing to train",
          {.subject = subject, .advice = "name fewer parameters", .code = ExitCode::usage});
  return fmt::format("{} of {} parameter tensors are not trained: {}{}", names.size(), all.size(),
                     names.front(), names.size() > 1 ? " to " + names.back() : "");
}

}  // namespace

WorkloadPlace place_of(Job& job, bool recovers) {
  return {.team = job.team(),
          .pipe_index = job.mesh().coordinates(job.rank()).pipe,
          .tensor = job.tensor_ranks(),
          .world = &job.world(),
          .host = job.cluster().ranks.at(static_cast<std::size_t>(job.rank())).hostname,
          .device = job.device(),
          .memory = memory_facts(job.cluster(), job.mesh(), recovers)};
}

parallel::Pipeline::Parts evaluation_pipeline(Job& job, Workload& workload, SpanSink& sink) {
  return {.model = *workload.model,
          .cuts = workload.cuts,
          .pipe = job.groups().pipe(),
          .queue = job.groups().queue(),
          .sink = sink,
          .shapes = workload.sample_shapes,
          .device = workload.device};
}

Evaluation::Parts evaluation_parts(Job& job, Workload& workload, parallel::Pipeline& pipeline,
                                   const Preparation& preparation) {
  return {.model = *workload.model,
          .pipeline = pipeline,
          .stages_per_rank = workload.cuts.stages() / workload.cuts.ranks,
          .preparation = preparation,
          .world = job.groups().world(),
          .data = job.groups().data(),
          .counts_common = job.speaks_for_tensor_group(),
          .scoring = workload.scoring,
          .half = workload.half,
          .kernels = workload.kernels};
}

Workload make_workload(const RunConfig& config, const WorkloadPlace& place, h5::Library& library) {
  auto [dataset, read_in_place] = open_dataset(config, place, library);
  auto workload = make_workload(config, place, library, std::move(dataset));
  workload.read_in_place = std::move(read_in_place);
  return workload;
}

Workload make_workload(const RunConfig& config, const WorkloadPlace& place, h5::Library& library,
                       data::Dataset dataset) {
  const auto& info = dataset.info();
  models::DatasetFacts facts{.task = info.task,
                             .sample_shape = info.shape,
                             .classes = static_cast<std::int64_t>(info.classes.size()),
                             .targets = info.target_count(),
                             .loss = config.model.loss};
  if (info.tokenizer) {
    facts.vocabulary = static_cast<std::int64_t>(info.tokenizer->vocabulary.size());
    facts.target_vocabulary = static_cast<std::int64_t>(info.tokenizer->target_vocabulary.size());
  }
  require(
      dataset.has_split("train"), "the dataset has no samples to train on",
      {.subject = info.name, .advice = "stage it again from a source with samples", .code = ExitCode::data});
  for (const auto& input : info.inputs)
    facts.inputs.push_back({.name = input.name, .shape = input.shape, .ids = input.ids});
  auto facts_of_memory = place.memory;
  facts_of_memory.samples = info.samples("train");
  const auto footprint = footprint_of(config, facts_of_memory);
  std::optional<parallel::MemoryMeter::Uncounted> shapes_only;
  if (footprint.starts_in_shards && !config.dry_run) shapes_only.emplace();
  auto model = models::find_model(config.model.name).make(facts, config.model.options);
  require_same_places(*model, info);
  auto golden = replayed_golden_batch(config, place);
  const auto frozen = freeze(config, *model);
  auto [cuts, layer_costs] = cut_model(config, *model, info, footprint.computed(), place);
  const double flops = 3 * model->forward_flops(info.shape);
  const auto evaluated_at_once =
      evaluation_batch(config, plan::evaluation_bytes(footprint, *model, info.shape),
                       config.mesh_shape.tensor > 1 ? 0.0 : most_held(footprint, *model, cuts, info.shape));
  model->hold(cuts.layers_of(place.pipe_index));
  if (place.tensor != nullptr) model->slice(*place.tensor);
  const auto repeated = repeated_alike(config, footprint, *model, cuts, place, info.shape);
  const auto memory = plan::estimate_memory(footprint, *model, cuts, place.pipe_index, info.shape, repeated);
  // A dry run may be of a model that has no room here.
  const bool moves = full_type(config) == at::kDouble || !place.device.is_cpu();
  if (!config.dry_run && moves) model->to(full_type(config), place.device);
  if (shapes_only) {
    shapes_only.reset();
    model->leave_shapes();
    model->fill(config.seed);
  } else if (!config.dry_run) {
    model->initialise(config.seed);
  }
  checkpoint::VocabularyHashes vocabulary{.all = data::vocabulary_hash(info),
                                          .source = data::vocabulary_hash(info, data::Side::source),
                                          .target = data::vocabulary_hash(info, data::Side::target)};
  std::string remark;
  if (!config.dry_run && !config.model.init_from.empty()) {
    const auto weights =
        checkpoint::open_weights(config.model.init_from, library, check_weights(config.model, place.world));
    const state::Destination here{.model = *model,
                                  .dataset = config.data.dataset,
                                  .vocabulary = vocabulary,
                                  .goes_on = config.model.init_is_checked};
    remark = state::load_weights(*weights, here, config.model.init_skip, config.model.init_from).text();
  }
  const bool scored = facts.classes > 0 && model->goal() == models::Goal::target;
  data::ReadOptions read;
  if (config.data.staging == "memory" && !dataset.folder().empty()) {
    read.staging = data::ReadOptions::Staging::memory;
    read.team = place.team;
  }
  const auto augmentation = augmentation_of(config, info);
  const bool varying = info.task == "text_classification" || info.task == "translation";
  models::TrainingLoss training_loss{.label_smoothing = config.model.label_smoothing};
  require(training_loss.label_smoothing == 0 || model->has_cross_entropy(),
          "the model " + model->name() + " tells no classes or words of this dataset apart",
          {.subject = "--label-smoothing",
           .advice = "leave it out, or use another --model",
           .code = ExitCode::usage});
  if (config.model.class_weights == "balanced") {
    require(model->classifies(), "the model " + model->name() + " tells no classes of this dataset apart",
            {.subject = "--class-weights balanced",
             .advice = "use none, or another --model",
             .code = ExitCode::usage});
    const auto weights = data::balanced_class_weights(*dataset.source("train", read), facts.classes);
    training_loss.class_weights = at::tensor(weights, full_type(config));
  }
  auto transformation = state::own_transformation(info);
  auto identity = state::identity_of(info);
  return {.dataset = std::move(dataset),
          .read = std::move(read),
          .transformation = std::move(transformation),
          .identity = std::move(identity),
          .model = std::move(model),
          .augmentation = augmentation,
          .half = half_type(config),
          .kernels = kernels_of(config),
          .device = place.device,
          .training_loss = std::move(training_loss),
          .scoring = scored ? Scoring::loss_and_accuracy : Scoring::loss_only,
          .read_in_place = {},
          .remark = std::move(remark),
          .frozen = frozen,
          .golden = std::move(golden),
          .vocabulary = std::move(vocabulary),
          .sample_shapes = varying ? parallel::StageMessages::SampleShapes::varying
                                   : parallel::StageMessages::SampleShapes::alike,
          .repeated_layers = repeated,
          .footprint = footprint,
          .memory = memory,
          .cuts = std::move(cuts),
          .layer_costs = std::move(layer_costs),
          .evaluation_batch = evaluated_at_once,
          .flops_per_sample = flops};
}

}  // namespace dtrain::train
