#include "train/loop/replica.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/reader.hpp"
#include "comm/watch/flight_recorder.hpp"
#include "core/parse_number.hpp"
#include "parallel/strategy/registry.hpp"
#include "state/initial_weights.hpp"
#include "train/config/precision.hpp"
#include "train/config/strategy_setting.hpp"
#include "train/loop/run_outputs.hpp"

namespace dtrain::train {
namespace {

/// One rank does one micro-batch after the other, whatever the schedule is called.
parallel::Pipelining pipelining(const RunConfig& config) {
  return config.mesh_shape.pipe > 1 ? parallel::parse_pipelining(config.pipeline.schedule)
                                    : parallel::Pipelining::layerwise;
}

std::function<bool()> spoils_loss(const comm::Injection* injection) {
  if (injection == nullptr) return {};
  return [injection] { return injection->spoils_loss(); };
}

/// The steps of the checkpoints that the run has left, ascending.
std::vector<std::int64_t> kept_steps(const RunConfig& config) {
  constexpr std::string_view kPrefix = "step-";
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (std::filesystem::directory_iterator next(checkpoints_folder(config), error), end;
       !error && next != end; next.increment(error)) {
    const auto name = next->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const auto step = parse_number<std::int64_t>(name.substr(kPrefix.size()));  // of others: of none
    if (step) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::unique_ptr<comm::ClockedGroup> clocked(comm::Group* group, comm::VirtualClock& clock, int lanes = 1) {
  return group == nullptr ? nullptr : std::make_unique<comm::ClockedGroup>(*group, clock, lanes);
}

/// Groups that cross between the same nodes at once.
int lanes_of(Job& job) {
  const auto* const in_node = job.groups().data_in_node();
  return in_node != nullptr ? in_node->size() : 1;
}

}  // namespace

Replica::Replica(const RunConfig& config, Job& job, Workload& workload, const federated::ClientRounds* rounds,
                 comm::Injection* injection, bool recovers, Requests requests, Takes takes)
    : config_(config),
      job_(job),
      workload_(workload),
      injection_(injection),
      setting_(strategy_setting(config, job, workload, rounds, recovers)),
      can_(parallel::require_strategy(config.strategy, setting_)),
      preparation_(workload.dataset.info(), workload.transformation, full_type(config),
                   workload.model->goal(), workload.augmentation, workload.device, job.device_clock()),
      capture_(can_.replays_graphs ? std::make_unique<parallel::StepCapture>(job.groups().recorder(),
                                                                             *job.rank_device().graphs)
                                   : nullptr),
      pipeline_({.model = *workload.model,
                 .cuts = workload.cuts,
                 .pipe = job.groups().pipe(),
                 .queue = job.groups().queue(),
                 .sink = capture_ != nullptr ? static_cast<SpanSink&>(*capture_) : job.groups().recorder(),
                 .shapes = workload.sample_shapes,
                 .repeated_layers = workload.repeated_layers,
                 .device = workload.device}),
      engine_({.model = *workload.model,
               .pipeline = pipeline_,
               .pipelining = pipelining(config),
               .stages_per_rank = workload.cuts.stages() / workload.cuts.ranks,
               .seed = config.seed,
               .half = workload.half,
               .kernels = workload.kernels,
               .training_loss = workload.training_loss,
               .reproducible = config.reproducible,
               .device = workload.device,
               .spoils_loss = spoils_loss(injection)}),
      graphs_(capture_ != nullptr ? std::make_unique<parallel::GraphEngine>(
                                        engine_, *capture_, *workload.model, workload.device, takes.graphs)
                                  : nullptr),
      direct_(direct_engine()),
      clocked_(job.virtual_clock() == nullptr
                   ? nullptr
                   : std::make_unique<Clocked>(
                         comm::ClockedGroup(job.groups().world(), *job.virtual_clock()),
                         comm::ClockedGroup(data_group(), *job.virtual_clock()),
                         clocked(job.groups().data_in_node(), *job.virtual_clock()),
                         clocked(job.groups().data_across(), *job.virtual_clock(), lanes_of(job)),
                         clocked(job.groups().data_gathers(), *job.virtual_clock()),
                         parallel::ClockedEngine(engine(), *job.virtual_clock()))),
      strategy_(
          parallel::find_strategy(config.strategy)
              .make({.setting = setting_,
                     .world = clocked_ != nullptr ? clocked_->world : job.groups().world(),
                     .data = clocked_ != nullptr ? clocked_->data : data_group(),
                     .data_in_node =
                         clocked_ != nullptr ? clocked_->data_in_node.get() : job.groups().data_in_node(),
                     .data_across =
                         clocked_ != nullptr ? clocked_->data_across.get() : job.groups().data_across(),
                     .data_gathers =
                         clocked_ != nullptr ? clocked_->data_gathers.get() : job.groups().data_gathers(),
                     .pipe = job.groups().pipe(),
                     .tensor = job.groups().tensor(),
                     .queue = job.groups().queue(),
                     .model = *workload.model,
                     .cuts = workload.cuts,
                     .engine = clocked_ != nullptr ? clocked_->engine : engine(),
                     .capture = capture_.get(),
                     .capture_news = std::move(takes.graphs),
                     .sink = job.groups().recorder(),
                     .dtype = full_type(config),
                     .device = workload.device,
                     .decays_matrices_only = config.update.decay == "matrices",
                     .grad_clip = config.update.grad_clip,
                     .buckets = {.bucket_bytes = config.bucket_bytes(), .algorithm = config.comm.all_reduce},
                     .seed = config.seed,
                     .requests = std::move(requests),
                     .tell = std::move(takes.tell),
                     .keep_ledger = std::move(takes.ledger),
                     .counts_common = job.speaks_for_tensor_group(),
                     .folder = run_folder(config) + "/clients",
                     .kept_steps = [&config] { return kept_steps(config); },
                     .clock = job.virtual_clock(),
                     .training_loss = workload.training_loss})) {}

comm::Group& Replica::data_group() {
  auto& data = job_.groups().data();
  return injection_ != nullptr ? injection_->tampered(data) : data;
}

/// Null: steps are not what it computes.
std::unique_ptr<parallel::DirectEngine> Replica::direct_engine() {
  const auto& mesh = job_.mesh().shape();
  const bool as_it_computes = !workload_.half && !config_.reproducible &&
                              workload_.kernels == models::Kernels::own && workload_.training_loss.plain() &&
                              workload_.repeated_layers == 0;
  if (mesh.pipe > 1 || mesh.tensor > 1 || !as_it_computes) return nullptr;
  auto model = models::DirectNetwork::of(*workload_.model);
  if (model == nullptr) return nullptr;
  return std::make_unique<parallel::DirectEngine>(engine_, std::move(model), job_.groups().recorder(),
                                                  spoils_loss(injection_));
}

parallel::StepEngine& Replica::engine() {
  if (direct_ != nullptr) return *direct_;
  return graphs_ != nullptr ? static_cast<parallel::StepEngine&>(*graphs_) : engine_;
}

/// The step's collectives began when the last rank came.
void Replica::settle_clock() {
  auto* const clock = job_.virtual_clock();
  if (clock != nullptr && clock->owes()) clock->settle(job_.world().max(clock->now_s()));
}

parallel::StepOutcome Replica::step(const parallel::StepPlan& plan, parallel::SampleSource& samples) {
  if (job_.virtual_clock() != nullptr) job_.virtual_clock()->forget();
  auto outcome = strategy_->step(plan, samples);
  settle_clock();
  if (injection_ != nullptr && injection_->drifts()) {
    const auto buffers = workload_.model->buffers();
    (buffers.empty() ? strategy_->state().flat_parameters() : buffers.front()->value).add_(1e-3);
  }
  return outcome;
}

std::vector<double> Replica::largest_of_copies(double mine) {
  return largest(mine, job_.mesh().shape().data, &topology::MeshCoordinates::data);
}

std::vector<double> Replica::largest_of_stages(double mine) {
  return largest(mine, job_.mesh().shape().pipe, &topology::MeshCoordinates::pipe);
}

/// Of the ranks with one coordinate, by that coordinate.
std::vector<double> Replica::largest(double mine, int extent, int topology::MeshCoordinates::*axis) {
  comm::Group& world = clocked_ != nullptr ? clocked_->world : job_.groups().world();
  std::vector<double> all(static_cast<std::size_t>(world.size()));
  world.all_gather(comm::Buffer::of(std::span(&mine, 1)), comm::Buffer::of(std::span(all))).wait();
  settle_clock();
  const auto& mesh = job_.mesh();
  std::vector<double> found(static_cast<std::size_t>(extent), 0.0);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto& most = found[static_cast<std::size_t>(mesh.coordinates(static_cast<int>(rank)).*axis)];
    most = std::max(most, all[rank]);
  }
  return found;
}

parallel::Samples Replica::training_samples(const data::Batch& batch) const {
  auto inputs = preparation_.training_inputs(batch);
  auto targets = targets_of(*workload_.model, preparation_, batch, inputs);
  return {std::move(inputs), std::move(targets)};
}

parallel::StateView Replica::state() {
  strategy_->synchronise();
  return strategy_->state();
}

void Replica::load_weights(const std::filesystem::path& folder, h5::Library& library) {
  const auto weights = checkpoint::open_weights(folder, library, checkpoint::Verify::manifest);
  state::load_weights(*weights,
                      {.model = *workload_.model,
                       .dataset = config_.data.dataset,
                       .vocabulary = workload_.vocabulary,
                       .goes_on = true,
                       .open = [this](std::size_t layer) { strategy_->open_weights(layer); },
                       .close = [this](std::size_t layer) { strategy_->close_weights(layer); }},
                      "", folder.string());
  strategy_->adopt_weights();
}

std::set<std::string> Replica::load_optimizer(const std::filesystem::path& folder, h5::Library& library) {
  auto anew = state::load_optimizer(checkpoint::load(folder, library, checkpoint::Verify::manifest),
                                    strategy_->state());
  strategy_->adopt_optimizer();
  return anew;
}

void Replica::load_what_outlives_reset(const std::filesystem::path& folder, h5::Library& library) {
  if (strategy_->privacy() == nullptr) return;
  if (state::load_what_outlives_reset(checkpoint::load(folder, library, checkpoint::Verify::manifest),
                                      strategy_->state()))
    strategy_->adopt_optimizer();
}

}  // namespace dtrain::train
