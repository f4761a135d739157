#include "train/loop/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "comm/faults/injection.hpp"
#include "core/clock.hpp"
#include "h5/library.hpp"
#include "parallel/memory/memory_meter.hpp"
#include "record/run_folder.hpp"
#include "state/kept_program.hpp"
#include "train/config/federated_setting.hpp"
#include "train/config/strategy_setting.hpp"
#include "train/loop/trainer.hpp"
#include "train/setup/dry_run.hpp"
#include "train/setup/kept_vocabulary.hpp"

namespace dtrain::train {
namespace {

/// The moment from which a run's times count: that at which its first part was started.
RunStart start_of(const RunConfig& config, bool goes_on, const comm::MpiEnvironment& mpi,
                  h5::Library& library) {
  const auto world = comm::Communicator::duplicate(mpi.world());
  world.barrier();  // one moment on all ranks, whatever their clocks say
  RunStart start{.steady_ns = steady_ns(), .utc = world.broadcast(utc_now(), 0)};
  if (!goes_on) return start;
  const std::string earlier =
      world.broadcast(record::start_time_of(library, record::results_path(run_folder(config))), 0);
  const double passed_s = seconds_of_utc(start.utc) - seconds_of_utc(earlier);
  if (!std::isfinite(passed_s)) return start;
  return {.steady_ns = start.steady_ns - std::llround(passed_s * 1e9), .utc = earlier};
}

/// Where the ranks of the run's earlier parts were, on all ranks the same.
std::vector<record::TopologyRow> earlier_topology(const RunConfig& config, const comm::MpiEnvironment& mpi,
                                                  h5::Library& library) {
  const auto world = comm::Communicator::duplicate(mpi.world());
  std::vector<record::TopologyRow> rows;
  if (world.rank() == 0) rows = record::topology_of(library, record::results_path(run_folder(config)));
  rows.resize(static_cast<std::size_t>(world.max(std::ssize(rows))));
  if (!rows.empty()) world.broadcast_bytes(std::as_writable_bytes(std::span(rows)), 0);
  return rows;
}

/// The options with a warm-up that ends before the run does: the recipe's is shortened, the user's is not.
/// Throws Error (exit code 2).
RunConfig with_fitting_warmup(RunConfig config, std::int64_t samples, const Log& log) {
  const auto batch = samples_of_step(config, samples);
  std::int64_t steps = config.epochs * ((samples + batch - 1) / batch);
  if (config.limit_steps > 0) steps = std::min<std::int64_t>(steps, config.limit_steps);
  int& warmup = config.update.schedule.warmup_steps;
  if (!config.given.contains("warmup-steps")) config.update.recipe_warmup_steps = warmup;
  if (warmup == 0 || warmup < steps) return config;
  require(!config.given.contains("warmup-steps"),
          fmt::format("the run has {} steps, and all of them would be warm-up", steps),
          {.subject = fmt::format("--warmup-steps {}", warmup),
           .advice = "use fewer, or train longer with --epochs or --limit-steps",
           .code = ExitCode::usage});
  const int recipe = std::exchange(warmup, optim::shortened_warmup(warmup, steps));
  log.info(fmt::format("warm-up    {} of the run's {} steps, not the {} of the model's recipe", warmup, steps,
                       recipe));
  return config;
}

}  // namespace

ExitCode run(const RunConfig& config, const std::optional<state::ResumePoint>& resume, Recovery& recovery,
             comm::MpiEnvironment& mpi, const Log& log, const Starting& starting) {
  const auto enter = [&starting](const char* stage) {
    if (starting.notice != nullptr) starting.notice->at(stage);
  };
  using Voice = comm::StopSignals::Voice;
  const auto& signals = recovery.signals(mpi.world_rank() == 0 ? Voice::speaks : Voice::silent);
  h5::Library library;
  if (!config.cluster.empty()) {
    log.info(describe_invented(config, library));
    return ExitCode::success;
  }
  // What lies in the folder until it is replaced is another run's.
  const bool goes_on = (recovery.goes_on() && !config.output.overwrite) || (resume && resume->own);
  const RunStart start = start_of(config, goes_on, mpi, library);
  if (goes_on && !recovery.goes_on()) recovery.keep(earlier_topology(config, mpi, library));
  if (!config.dry_run) record::create_run_folder(run_folder(config));
  parallel::MemoryMeter::process().install();
  parallel::MemoryMeter::process().limit(config.pipeline.memory_limit_bytes());
  std::unique_ptr<record::TraceWriter> trace;
  record::StepClock clock;
  std::unique_ptr<comm::Injection> injection;
  if (!config.inject.empty()) {
    injection = std::make_unique<comm::Injection>(comm::parse_faults(config.inject, mpi.first_size()),
                                                  mpi.first_rank(), clock);
  }
  SpanSink& sink = injection ? static_cast<SpanSink&>(*injection) : clock;
  std::unique_ptr<comm::SlowCompute> slow_compute;
  if (config.fabric.exists()) log.info("emulated   " + config.fabric.in_words());
  if (config.fabric.exists() && !config.fabric.computes_times())
    slow_compute = std::make_unique<comm::SlowCompute>(config.fabric, mpi.first_rank(), sink);
  enter("the ranks find their places and make groups");
  Job job(config, mpi, slow_compute ? static_cast<SpanSink&>(*slow_compute) : sink, !recovery.behind(),
          resume ? resume->info.all_reduce : checkpoint::AllReduceTable());
  if (!recovery.behind()) {  // after a loss one node may be left, or have fewer ranks than others
    require_links_to_compress(config, job);
    require_ranks_to_shard_within(config, job);
  }
  if (const auto table = job.all_reduce_table().to_string(); !table.empty()) {
    log.info(fmt::format("all_reduce by bytes, between nodes: {}", table));
  }
  RunConfig with_weights = config;  // a run that goes on takes them from its checkpoint
  with_weights.pipeline.measured = recovery.stage_costs();
  if (resume) {
    with_weights.model.init_from = resume->folder.string();
    with_weights.model.init_is_checked = true;
    with_weights.model.init_skip.clear();
  }
  enter("each rank opens the dataset and builds the model");
  auto workload = make_workload(with_weights, place_of(job, recovery.may_lose_ranks()), library);
  if (resume) {
    state::check_same_program(resume->info.program, *workload.model, resume->folder.string());
    workload.transformation = state::transformation_as_trained(
        resume->info.transformations, workload.dataset.info(), resume->folder.string());
  }
  const auto fitting = with_fitting_warmup(config, workload.dataset.info().samples("train"), log);
  if (config.dry_run) {
    log.info(describe(config, job.cluster(), job.mesh(), workload));
    return ExitCode::success;
  }
  const auto begin_files = [&]() -> record::TraceWriter* {
    if (starting.before_files) starting.before_files();
    if (!config.output.traces()) return nullptr;
    trace = std::make_unique<record::TraceWriter>(
        record::trace_part_path(run_folder(config), mpi.first_rank()), mpi.first_rank(), start.steady_ns,
        goes_on ? record::TraceBegin::continued : record::TraceBegin::anew, config.output.trace_window());
    clock.trace_to(trace.get());
    return trace.get();
  };
  enter("the ranks agree on weights and files");
  Trainer trainer(fitting, job, workload,
                  {library, clock, begin_files, start, recovery.begun_s(), signals, injection.get(),
                   slow_compute.get(), recovery, mpi},
                  resume, log);
  if (mpi.world_rank() == 0) {
    state::keep_program(run_folder(config), config.model.name, *workload.model);
    if (config.data.dataset != "synthetic") keep_vocabulary(run_folder(config), workload.dataset.info());
  }
  job.end_preparation();
  if (starting.notice != nullptr) starting.notice->done();
  if (starting.before_steps) starting.before_steps();
  return trainer.train();
}

}  // namespace dtrain::train
