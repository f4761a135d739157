#include "train/trainer.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "core/clock.hpp"
#include "core/version.hpp"
#include "data/sampler.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"
#include "parallel/agreement.hpp"
#include "parallel/memory_meter.hpp"
#include "parallel/node_memory.hpp"
#include "parallel/pieces.hpp"
#include "parallel/pipeline.hpp"
#include "parallel/tensor_ranks.hpp"
#include "parallel/tied_parameters.hpp"
#include "record/run_folder.hpp"
#include "record/step_clock.hpp"
#include "train/by_rows.hpp"
#include "train/checkpoints.hpp"
#include "train/dry_run.hpp"
#include "train/evaluation.hpp"
#include "train/initial_weights.hpp"
#include "train/interval.hpp"
#include "train/job.hpp"
#include "train/progress.hpp"
#include "train/run_outputs.hpp"
#include "train/saved_state.hpp"
#include "train/stop_signals.hpp"
#include "train/training_step.hpp"
#include "train/workload.hpp"

namespace dtrain::train {
namespace {

data::LoaderOptions loader_options(const Job& job) {
  return {.drive = job.has_spare_core() ? data::LoaderOptions::Drive::thread
                                        : data::LoaderOptions::Drive::inline_call};
}

at::ScalarType scalar_type(const RunConfig& config) {
  return config.precision == "fp64" ? at::kDouble : at::kFloat;
}

/// Room for the parameters and the optimizer's state.
parallel::NodeMemory node_memory(comm::Group& group, models::Model& model, const RunConfig& config) {
  const auto tensors = 1 + optimizer_config(config.optimizer).state_count();
  return {group, tensors * parallel::FlatParameters::size_of(model), scalar_type(config)};
}

parallel::BucketConfig bucket_config(const CommConfig& config, const parallel::NodeMemory& memory) {
  using Update = parallel::BucketConfig::Update;
  return {.bucket_bytes = static_cast<std::int64_t>(config.bucket_mb * 1024 * 1024),
          .algorithm = comm::parse_algorithm(config.all_reduce),
          .update = memory.shared() ? Update::parts : Update::everything};
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
    const bool spared = config.decay_matrices_only && entry.parameter->value.dim() < 2;
    ranges.push_back({.begin = entry.offset,
                      .end = entry.offset + entry.count,
                      .weight_decay = spared ? 0.0 : config.weight_decay});
  }
  return ranges;
}

/// Whether the epoch of a checkpoint is over, and the next one is to begin.
bool is_done(const checkpoint::CheckpointInfo& info, std::int64_t samples) {
  return info.position_samples == samples && info.so_far.evaluated;
}

/// Of what an earlier part of the run has recorded. An epoch that goes on is recorded when it is done.
std::optional<record::Kept> kept_of(const std::optional<ResumePoint>& resume, std::int64_t samples) {
  if (!resume || !resume->own) return std::nullopt;
  const auto& info = resume->info;
  return record::Kept{.step = info.step, .epoch = is_done(info, samples) ? info.epoch : info.epoch - 1};
}

/// Algorithm 1 of the study: what run() does, step by step.
class Trainer {
 public:
  struct Recording {
    h5::Library& library;
    record::StepClock& clock;
    record::TraceWriter* trace;  // null: none
    RunStart start;
    double begun_s;  // when this process was, which may go on with an earlier one's run
  };
  Trainer(const RunConfig& config, Job& job, Workload& workload, const Recording& recording,
          const std::optional<ResumePoint>& resume, const Log& log);

  ExitCode train();

 private:
  enum class Ending { complete, stopped };
  void go_on_from(const ResumePoint& resume, h5::Library& library);
  void announce(const std::optional<ResumePoint>& resume) const;
  Ending train_epoch();
  bool train_steps(std::int64_t steps, EpochSums& sums);
  void ask(parallel::StepShare& share) const;
  void show_progress(std::int64_t done_in_epoch, std::int64_t done_here, const parallel::StepShare& sums,
                     double elapsed_s);
  std::optional<EvaluationResult> evaluate(const std::string& split);
  void keep_if_best(const std::optional<EvaluationResult>& validation);
  TrainingState state();
  checkpoint::CheckpointInfo info(const parallel::StepShare& total, double train_time_s,
                                  bool evaluated) const;
  ExitCode stop();
  void test_best();

  const RunConfig& config_;
  Job& job_;
  Workload& workload_;
  record::StepClock& clock_;
  const Log& log_;

  comm::Group& data_group_;
  Preparation preparation_;
  parallel::Pipeline pipeline_;
  parallel::NodeMemory memory_;
  parallel::FlatParameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<parallel::RowUpdates> rows_;  // before the buckets, which leave its parameter out
  parallel::GradientBuckets buckets_;
  parallel::StepControl control_;
  parallel::StepStatistics statistics_;
  parallel::TiedParameters tied_;
  TrainingStep training_step_;
  data::Loader loader_;
  std::vector<std::int64_t> lengths_;  // of the training samples; empty where all are alike
  parallel::Pieces pieces_;
  optim::ScheduleConfig schedule_;
  std::map<std::string, Evaluation> evaluations_;  ///< By split.
  RunOutputs outputs_;
  Checkpoints checkpoints_;
  StopSignals signals_;
  double stop_at_s_ = std::numeric_limits<double>::infinity();
  ProgressLine progress_;

  std::int64_t total_steps_;
  std::int64_t step_ = 0;            // updates done
  int epoch_ = 0;                    // the latest begun, from 1
  std::vector<std::int64_t> order_;  // of the epoch's samples
  std::optional<checkpoint::EpochProgress>
      earlier_;                      // of the next epoch, begun by an earlier part of the run
  checkpoint::CheckpointInfo last_;  // of the newest state that a checkpoint may have
  checkpoint::BestSoFar best_;
  h5::Library& library_;
};

Trainer::Trainer(const RunConfig& config, Job& job, Workload& workload, const Recording& recording,
                 const std::optional<ResumePoint>& resume, const Log& log)
    : config_(config),
      job_(job),
      workload_(workload),
      clock_(recording.clock),
      log_(log),
      data_group_(job.groups().data()),
      preparation_(workload.dataset.info(), scalar_type(config), workload.model->goal(),
                   workload.augmentation),
      pipeline_({.model = *workload.model,
                 .cuts = workload.cuts,
                 .pipe = job.groups().pipe(),
                 .queue = job.groups().queue(),
                 .sink = recording.clock,
                 .shapes = workload.sample_shapes,
                 .repeated_layers = workload.repeated_layers}),
      memory_(node_memory(data_group_, *workload.model, config)),
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
      buckets_(parameters_, data_group_, job.groups().queue(), bucket_config(config.comm, memory_)),
      control_(job.groups().world()),
      statistics_(*workload.model, data_group_),
      tied_(*workload.model, workload.cuts, job.groups().pipe(), buckets_),
      training_step_({.world = job.groups().world(),
                      .data = data_group_,
                      .model = *workload.model,
                      .pipeline = pipeline_,
                      .pipelining = pipelining(config),
                      .stages_per_rank = workload.cuts.stages() / workload.cuts.ranks,
                      .parameters = parameters_,
                      .buckets = buckets_,
                      .control = control_,
                      .statistics = statistics_,
                      .tied = tied_,
                      .optimizer = *optimizer_,
                      .preparation = preparation_,
                      .sink = recording.clock,
                      .class_weights = workload.class_weights,
                      .rows = rows_.get(),
                      .ask = [this](parallel::StepShare& share) { ask(share); },
                      .counts_common = job.speaks_for_tensor_group()},
                     config.seed, config.optimizer.grad_clip),
      loader_(workload.dataset, "train", loader_options(job), workload.read),
      lengths_(workload.dataset.source("train", workload.read)->lengths()),
      pieces_{.samples = workload.dataset.info().samples("train"),
              .global_batch = config.batch.global_batch,
              .micro_batches = config.batch.micro_batches,
              .data_ranks = data_group_.size()},
      schedule_{.name = config.optimizer.schedule,
                .learning_rate = config.optimizer.learning_rate,
                .warmup_steps = config.optimizer.warmup_steps},
      outputs_(config, job, workload, recording.library, recording.trace, recording.start,
               kept_of(resume, pieces_.samples), log),
      checkpoints_(config, checkpoints_folder(config), job, recording.library, recording.clock, log,
                   [this](auto kind, auto detail) { outputs_.event(kind, detail); }),
      progress_(stdout, job.rank() == 0 && config.output.terminal && !config.output.quiet
                            ? ProgressLine::Style::in_place
                            : ProgressLine::Style::none),
      total_steps_(config.epochs * pieces_.steps()),
      library_(recording.library) {
  if (config.limit_steps > 0) total_steps_ = std::min<std::int64_t>(total_steps_, config.limit_steps);
  if (config.exit_after != "none") {
    stop_at_s_ = recording.begun_s + parse_interval(config.exit_after, "--exit-after").count;
  }
  if (memory_.shared()) {
    data_group_.barrier().wait();  // the values are there
  } else {
    parallel::broadcast_parameters(data_group_, parameters_.values());
  }
  parallel::broadcast_buffers(data_group_, *workload.model);
  tied_.exchange_values();
  if (resume) go_on_from(*resume, recording.library);
  announce(resume);
}

/// The weights are there; the rest of the state, and where the run stood.
void Trainer::go_on_from(const ResumePoint& resume, h5::Library& library) {
  load_optimizer(checkpoint::load(resume.folder, library, checkpoint::Verify::manifest), parameters_,
                 *optimizer_);
  data_group_.barrier().wait();  // where the ranks of a node share it
  last_ = resume.info;
  step_ = last_.step;
  epoch_ = static_cast<int>(last_.epoch);
  if (resume.own) best_ = last_.best;
  if (!is_done(last_, pieces_.samples)) {
    earlier_ = last_.so_far;
    --epoch_;
  }
  for (const auto& problem : resume.passed_over) outputs_.event("checkpoint_damaged", problem);
  outputs_.event("resumed", fmt::format("from {} on {} ranks, {}", resume.folder.filename().string(),
                                        job_.world().size(), job_.mesh().shape().to_string()));
}

ExitCode Trainer::train() {
  while (epoch_ < config_.epochs && (step_ < total_steps_ || earlier_)) {
    ++epoch_;
    if (train_epoch() == Ending::stopped) return stop();
  }
  checkpoints_.finish(state(), last_);
  test_best();
  const bool saved = checkpoints_.problem().empty();
  outputs_.finish(saved ? record::Status::completed : record::Status::failed);
  require(saved, checkpoints_.problem(),
          {.subject = checkpoints_folder(config_), .advice = "free space", .code = ExitCode::checkpoint});
  return ExitCode::success;
}

/// Leaves what the run can be resumed from.
ExitCode Trainer::stop() {
  checkpoints_.finish(state(), last_);
  const auto& problem = checkpoints_.problem();
  outputs_.event("stopped", fmt::format("on request after step {}", step_));
  outputs_.finish(problem.empty() ? record::Status::preempted : record::Status::failed);
  require(problem.empty(), problem,
          {.subject = checkpoints_folder(config_), .advice = "free space", .code = ExitCode::checkpoint});
  log_.info(fmt::format("stopped    on request after step {}; the same command goes on from there", step_));
  return ExitCode::stopped;
}

void Trainer::ask(parallel::StepShare& share) const {
  if (signals_.asked() || (job_.rank() == 0 && steady_s() >= stop_at_s_)) share.stop_requests = 1;
  if (checkpoints_.asked_by_clock()) share.save_requests = 1;
}

void Trainer::announce(const std::optional<ResumePoint>& resume) const {
  log_.info(fmt::format(
      "dtrain {}: {} ({} parameters) on {}, {} samples, {} ranks, mesh {}, {} thread{} each, {}", version(),
      config_.model.name, workload_.model->parameter_count(), workload_.dataset.info().name, pieces_.samples,
      job_.world().size(), job_.mesh().shape().to_string(), job_.threads(), job_.threads() == 1 ? "" : "s",
      job_.groups().backend_name()));
  if (job_.rank() == 0 && job_.mesh().crosses_nodes(job_.cluster(), topology::Axis::tensor)) {
    const auto inputs = workload_.model->input_shapes(samples_of_largest_piece(config_.batch),
                                                      workload_.dataset.info().shape);
    log_.warn(
        fmt::format("the tensor axis crosses nodes: each micro-batch sums {:.1f} MiB between them, layer by "
                    "layer; let tensor divide the ranks of a node to avoid it",
                    parallel::bytes_of_sums(*workload_.model, inputs) / 0x1p20));
  }
  if (!workload_.remark.empty())
    log_.info(fmt::format("weights from {}: {}", config_.model.init_from, workload_.remark));
  if (!resume) return;
  for (const auto& problem : resume->passed_over) log_.info("passed over " + problem);
  log_.info(fmt::format("resumed    from {}, step {} of {}", resume->folder.string(), step_, total_steps_));
}

Trainer::Ending Trainer::train_epoch() {
  const auto first_step = (epoch_ - 1) * pieces_.steps();
  const auto steps = std::min(pieces_.steps(), total_steps_ - first_step);
  order_ = data::training_order(pieces_.samples, lengths_, pieces_.global_batch, config_.seed, epoch_);
  EpochSums sums;
  if (earlier_) {
    sums.total = {.loss = earlier_->loss,
                  .weight = earlier_->weight,
                  .correct = earlier_->correct,
                  .counted = earlier_->counted};
    sums.earlier_s = earlier_->train_time_s;
    if (job_.rank() == 0) sums.sample_hash = earlier_->sample_hash;
    earlier_.reset();
  }
  auto& meter = parallel::MemoryMeter::process();
  const auto held_bytes = meter.live();
  meter.begin_peak();
  if (!train_steps(steps, sums)) return Ending::stopped;
  sums.samples = pieces_.step(steps - 1).end;
  outputs_.activations(epoch_, meter.peak() - held_bytes);

  if (rows_) rows_->flush();  // from here to the next epoch everybody sees a whole table
  const auto validation = evaluate("validation");
  progress_.clear();
  outputs_.epoch(epoch_, sums, validation);
  last_ = info(sums.total, sums.earlier_s + sums.phases.wall_s, true);
  keep_if_best(validation);
  if (checkpoints_.due_after_epoch(epoch_)) checkpoints_.save(state(), last_, Checkpoints::Mark::none);
  return Ending::complete;
}

/// The steps of the epoch that are still to do, up to `steps`; false when all ranks were asked to stop.
bool Trainer::train_steps(std::int64_t steps, EpochSums& sums) {
  const auto first_step = (epoch_ - 1) * pieces_.steps();
  const auto done = step_ - first_step;
  const auto mine = pieces_.owned_by(data_group_.rank());
  auto requests = data::epoch_requests(order_, pieces_.global_batch, pieces_.micro_batches, mine,
                                       {done, steps}, first_step);
  std::erase_if(requests, [](const data::PieceRequest& request) { return request.samples.empty(); });
  std::vector<std::vector<StepPiece>> pieces_of_step(static_cast<std::size_t>(steps));
  for (const auto& request : requests) {
    pieces_of_step[static_cast<std::size_t>(request.step - first_step)].push_back(
        {static_cast<std::uint32_t>(request.micro_batch), static_cast<std::int64_t>(request.samples.size())});
    // A copy's samples are counted once, where their loss is.
    if (pipeline_.is_last() && job_.speaks_for_tensor_group())
      sums.sample_hash += data::sample_hash(request.samples);
  }
  if (pipeline_.is_first() || pipeline_.is_last()) loader_.start(std::move(requests));

  clock_.take();  // what happened between the epochs belongs to neither
  const double start_s = steady_s();
  for (auto s = done; s < steps; ++s) {
    const double rate = optim::learning_rate(schedule_, step_ + 1, total_steps_);
    const auto outcome =
        training_step_.run(step_ + 1, pieces_of_step[static_cast<std::size_t>(s)], loader_, rate);
    ++step_;
    const bool stops = outcome.total.stop_requests > 0 && step_ < total_steps_;
    const bool saves = outcome.total.save_requests > 0 || checkpoints_.due_after_step(step_);
    if (stops || saves) {
      auto total = sums.total;
      total.add_samples(outcome.total);
      last_ = info(total, sums.earlier_s + (steady_s() - start_s), false);
      if (!stops) checkpoints_.save(state(), last_, Checkpoints::Mark::none);
    }
    outputs_.step(step_, epoch_, outcome, rate, clock_.take(), sums);
    show_progress(s + 1, s + 1 - done, sums.total, steady_s() - start_s);
    if (stops) {
      progress_.clear();
      return false;
    }
  }
  return true;
}

void Trainer::show_progress(std::int64_t done_in_epoch, std::int64_t done_here,
                            const parallel::StepShare& sums, double elapsed_s) {
  if (!progress_.visible()) return;
  const double step_s = elapsed_s / static_cast<double>(done_here);
  const auto samples = pieces_.step(done_in_epoch - 1).end - pieces_.step(done_in_epoch - done_here).begin;
  progress_.show({.epoch = epoch_,
                  .epochs = config_.epochs,
                  .step = done_in_epoch,
                  .steps = pieces_.steps(),
                  .loss = sums.loss / sums.weight,
                  .samples_per_s = static_cast<double>(samples) / elapsed_s,
                  .seconds_left = step_s * static_cast<double>(total_steps_ - step_)});
}

std::optional<EvaluationResult> Trainer::evaluate(const std::string& split) {
  const auto samples = workload_.dataset.info().samples(split);
  if (samples == 0) return std::nullopt;
  auto place = evaluations_.find(split);
  if (place == evaluations_.end()) {
    data::Loader loader(workload_.dataset, split, loader_options(job_), workload_.read);
    const Evaluation::Parts parts{.model = *workload_.model,
                                  .pipeline = pipeline_,
                                  .stages_per_rank = workload_.cuts.stages() / workload_.cuts.ranks,
                                  .preparation = preparation_,
                                  .world = job_.groups().world(),
                                  .data = data_group_,
                                  .counts_common = job_.speaks_for_tensor_group(),
                                  .scoring = workload_.scoring};
    place = evaluations_
                .try_emplace(split, parts, std::move(loader), samples,
                             evaluation_batch(config_, workload_.dataset.info()))
                .first;
  }
  return place->second.run();
}

/// To be saved between two steps. Collective.
TrainingState Trainer::state() {
  if (rows_) rows_->flush();
  return {parameters_, *workload_.model, *optimizer_};
}

checkpoint::CheckpointInfo Trainer::info(const parallel::StepShare& total, double train_time_s,
                                         bool evaluated) const {
  const auto position = pieces_.step((step_ - 1) % pieces_.steps()).end;
  const std::span<const std::int64_t> used(order_.data(), static_cast<std::size_t>(position));
  return {.step = step_,
          .epoch = epoch_,
          .position_samples = position,
          .so_far = {.loss = total.loss,
                     .weight = total.weight,
                     .correct = total.correct,
                     .counted = total.counted,
                     .train_time_s = train_time_s,
                     .sample_hash = data::sample_hash(used),
                     .evaluated = evaluated},
          .best = best_,
          .model = config_.model.name,
          .dataset = workload_.dataset.info().name,
          .seed = config_.seed,
          .micro_batches = config_.batch.micro_batches,
          .config = config_.text,
          .dtrain_version = std::string(version()),
          .vocabulary = workload_.vocabulary};
}

// Without a validation split every epoch is the best so far. All ranks decide alike: the loss is agreed.
void Trainer::keep_if_best(const std::optional<EvaluationResult>& validation) {
  const double loss = validation ? validation->total.loss : -static_cast<double>(epoch_);
  if (best_.step > 0 && !improves(loss, best_.loss)) return;
  best_ = last_.best = {.step = step_, .loss = loss};
  checkpoints_.save_best(state(), last_);
}

void Trainer::test_best() {
  if (best_.step == 0 || workload_.dataset.info().samples("test") == 0) return;
  const std::string folder = checkpoints_folder(config_) + "/" + checkpoint::step_folder(best_.step);
  if (best_.step != step_) {
    if (!checkpoints_.problem().empty()) return;  // the best may be what is missing
    const auto weights = checkpoint::open_weights(folder, library_, checkpoint::Verify::manifest);
    load_weights(
        *weights,
        {.model = *workload_.model, .dataset = config_.data.dataset, .vocabulary = workload_.vocabulary}, "",
        folder);
    data_group_.barrier().wait();  // where the ranks of a node share them
    tied_.exchange_values();
  }
  const auto steps = pieces_.steps();
  if (const auto test = evaluate("test")) outputs_.test(*test, best_.step, (best_.step + steps - 1) / steps);
}

/// The moment from which a run's times count: that at which its first part was started.
RunStart start_of(const RunConfig& config, const std::optional<ResumePoint>& resume, h5::Library& library) {
  const auto world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  world.barrier();  // one moment on all ranks, whatever their clocks say
  RunStart start{.steady_ns = steady_ns(), .utc = world.broadcast(utc_now(), 0)};
  if (!resume || !resume->own) return start;
  const std::string earlier =
      world.broadcast(record::start_time_of(library, record::results_path(run_folder(config))), 0);
  const double passed_s = seconds_of_utc(start.utc) - seconds_of_utc(earlier);
  if (!std::isfinite(passed_s)) return start;
  return {.steady_ns = start.steady_ns - std::llround(passed_s * 1e9), .utc = earlier};
}

}  // namespace

ExitCode run(const RunConfig& config, const std::optional<ResumePoint>& resume, comm::MpiEnvironment& mpi,
             const Log& log) {
  const double begun_s = steady_s();
  h5::Library library;
  if (!config.cluster.empty()) {
    log.info(describe_invented(config, library));
    return ExitCode::success;
  }
  const RunStart start = start_of(config, resume, library);
  if (!config.dry_run) record::create_run_folder(run_folder(config));
  std::unique_ptr<record::TraceWriter> trace;
  if (config.output.trace && !config.dry_run) {
    trace = std::make_unique<record::TraceWriter>(
        record::trace_part_path(run_folder(config), mpi.world_rank()), mpi.world_rank(), start.steady_ns);
  }
  parallel::MemoryMeter::process().install();
  parallel::MemoryMeter::process().limit(config.pipeline.memory_limit_bytes());
  record::StepClock clock(trace.get());
  Job job(config, mpi, clock);
  RunConfig with_weights = config;  // a run that goes on takes them from its checkpoint
  if (resume) {
    with_weights.model.init_from = resume->folder.string();
    with_weights.model.init_skip.clear();
  }
  auto workload = make_workload(with_weights, place_of(job), library);
  if (config.dry_run) {
    log.info(describe(config, job.cluster(), job.mesh(), workload));
    return ExitCode::success;
  }
  return Trainer(config, job, workload, {library, clock, trace.get(), start, begun_s}, resume, log).train();
}

}  // namespace dtrain::train
