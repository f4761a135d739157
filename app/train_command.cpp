#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/mpi/communicator.hpp"
#include "comm/survey/discover.hpp"
#include "commands.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/outside.hpp"
#include "core/printable.hpp"
#include "core/start_notice.hpp"
#include "data/shards/dataset.hpp"
#include "failure.hpp"
#include "option.hpp"
#include "preflight.hpp"
#include "record/run_folder.hpp"
#include "record/run_holder.hpp"
#include "run_arguments.hpp"
#include "run_folder.hpp"
#include "same_run.hpp"
#include "state/resume_point.hpp"
#include "train/loop/run.hpp"
#include "train/loop/run_outputs.hpp"
#include "train/setup/transformations.hpp"

namespace dtrain::app {
namespace {

/// Does `action` on rank 0; its Error is thrown on every rank.
template <typename Action>
void on_first_rank(const comm::Communicator& world, Action action) {
  std::string problem;
  std::string subject;
  std::string advice;
  ExitCode code = ExitCode::success;
  if (world.rank() == 0) {
    try {
      action();
    } catch (const std::exception& thrown) {
      const Error error = as_error(thrown);
      problem = error.problem();
      subject = error.subject();
      advice = error.advice();
      code = error.code();
    }
  }
  problem = world.broadcast(problem, 0);
  if (problem.empty()) return;
  subject = world.broadcast(subject, 0);
  advice = world.broadcast(advice, 0);
  code = static_cast<ExitCode>(world.max(static_cast<std::int64_t>(code)));
  throw Error(problem, {.subject = subject, .advice = advice, .code = code});
}

std::string to_toml_without_name(train::RunConfig config, bool named) {
  if (!named) config.output.name.clear();
  return to_toml(config);
}

record::Status status_of(ExitCode code) {
  if (code == ExitCode::success) return record::Status::completed;
  return code == ExitCode::stopped ? record::Status::preempted : record::Status::failed;
}

/// A folder that only some nodes see would hold half of the run. Collective. Throws Error (exit code 2).
void check_seen_by_all(const RunFolder& folder, const comm::Communicator& world) {
  const std::string token = world.broadcast(fmt::format("{}-{}", ::getpid(), steady_ns()), 0);
  on_first_rank(world, [&] { folder.leave_token(token); });
  const bool seen = world.rank() == 0 || folder.has_token(token);
  const auto blind = world.max(static_cast<std::int64_t>(seen ? -1 : world.rank()));
  if (world.rank() == 0) folder.remove_token();
  if (blind < 0) return;
  throw usage_error(fmt::format("rank {} does not see the folder that rank 0 has made", blind),
                    folder.path().string(), "name one that all nodes share with --output");
}

constexpr double kShortestStart_s = 60;  // limit, however short the watchdog's is

constexpr const char* kHowToRecover = "start with mpirun --with-ft ulfm of Open MPI 5";

void check_on_failure(const train::RunConfig& config, const comm::MpiEnvironment& mpi) {
  if (config.on_failure != "recover" || mpi.can_recover()) return;
  throw usage_error("this MPI was not started so that ranks may be lost", "--on-failure recover",
                    fmt::format("{}, or use auto", kHowToRecover));
}

/// Ranks that are kept for a loss must be able to take a place. Purely local: every rank finds the same.
void check_spares(const train::RunConfig& config, const comm::MpiEnvironment& mpi) {
  const std::string subject = fmt::format("--spares {}", config.spares);
  if (config.spares >= mpi.world_size()) {
    throw usage_error(fmt::format("of {} ranks none would be left to work", mpi.world_size()), subject,
                      fmt::format("start at least {}", config.spares + 1));
  }
  if (mpi.can_recover() && config.on_failure != "abort") return;
  throw usage_error("spares would wait in vain: this job ends when a rank is lost", subject,
                    mpi.can_recover() ? "leave --on-failure abort out" : kHowToRecover);
}

std::string recovery_in_words(const train::RunConfig& config, const comm::MpiEnvironment& mpi) {
  if (config.on_failure == "abort") return "recovery   off: --on-failure abort";
  if (!mpi.can_recover()) return fmt::format("recovery   off: {} to have it", kHowToRecover);
  if (config.spares == 0) return "recovery   on: when a rank is lost, the others go on without it";
  return fmt::format("recovery   on: {} spare rank{} take{} the places of lost ones", config.spares,
                     config.spares == 1 ? "" : "s", config.spares == 1 ? "s" : "");
}

/// The run's folder from its first state to its last. Only rank 0 writes the state of a run that went well.
ExitCode run_in_folder(const train::RunConfig& config, const std::optional<state::ResumePoint>& resume,
                       const std::optional<train::Recovery>& recovery, comm::MpiEnvironment& mpi,
                       const comm::Communicator& world, const Log& log, StartNotice* starting) {
  const RunFolder folder(train::run_folder(config));
  const auto contents = config.output.overwrite          ? RunFolder::Contents::replaced
                        : resume && resume->own          ? RunFolder::Contents::kept
                        : recovery                       ? RunFolder::Contents::kept
                        : config.output.resume == "none" ? RunFolder::Contents::none
                                                         : RunFolder::Contents::unsaved;
  {
    const comm::LongPhase removing(world, config.comm.files_limit_s());  // of what an earlier run has left
    on_first_rank(world, [&] {
      for (const std::string& name : folder.prepare(contents, config.text))
        std::cerr << "dtrain: " << printable((folder.path() / name).string())
                  << " is left: dtrain did not write it" << std::endl;
    });
  }
  try {
    check_seen_by_all(folder, world);
    const ExitCode code = train::run(config, resume, recovery, mpi, log, starting);
    on_first_rank(world, [&] { record::write_state(folder.path().string(), status_of(code)); });
    return code;
  } catch (const train::RanksLost&) {
    throw;  // it is to be gone on with
  } catch (...) {
    folder.mark_failed();  // whichever rank it was: the others may not come so far
    throw;
  }
}

/// Where the run is to go on, if anywhere. Collective.
std::optional<state::ResumePoint> find_resume_point(const train::RunConfig& config,
                                                    const std::optional<train::Recovery>& recovery,
                                                    const comm::Communicator& world) {
  const std::string& resume = config.output.resume;
  const bool is_path = resume != "auto" && resume != "none";
  if (!recovery && is_path) return state::resume_point(resume, world);
  if (!recovery && (resume == "none" || config.output.overwrite)) return std::nullopt;
  const RunFolder folder(train::run_folder(config));
  bool can_go_on = false;
  on_first_rank(world, [&] { can_go_on = recovery ? folder.has_checkpoints() : folder.can_go_on(config); });
  if (world.max(static_cast<std::int64_t>(can_go_on)) == 1)
    return state::newest_valid(train::checkpoints_folder(config), world);
  return is_path ? std::optional(state::resume_point(resume, world)) : std::nullopt;
}

/// What is made anew at each start is known by its seed.
void check_same_dataset(const train::RunConfig& config, const state::ResumePoint& resume) {
  if (config.data.dataset == "synthetic") return;
  const auto info = data::read_dataset_info(data::find_dataset(config.data.dataset, config.data.root));
  state::check_same_dataset(resume, train::identity_of(info), info.name,
                            global_batch_of(resume.info, resume.folder.string()));
}

/// What the run is called: where the user gave no name, one of its own, but in Slurm the job's. Collective.
std::string settle_name(const train::RunConfig& config, const Environment& environment,
                        const comm::Communicator& world) {
  std::string name = config.output.name;
  on_first_rank(world, [&] {
    if (!name.empty()) return;
    name = default_name(config, environment);
    if (!config.dry_run && !environment.slurm_job_id) name = make_own_folder(config.output.folder, name);
  });
  return world.broadcast(name, 0);
}

/// From the newest checkpoint, or from the start. `config`: as it was given, but for what an earlier part of
/// the run has settled; that is put into it. Collective.
ExitCode train_once(train::RunConfig& config, const std::optional<train::Recovery>& recovery, bool named,
                    const Environment& environment, comm::MpiEnvironment& mpi, StartNotice* starting) {
  if (starting != nullptr) starting->at("the ranks agree on their options");
  const auto world =
      comm::Communicator::duplicate(mpi.world(), std::max(kShortestStart_s, config.comm.watchdog_s));
  Log log(mpi.world_rank(), config.output.quiet ? Log::Verbosity::quiet : Log::Verbosity::normal);
  log.call_rank(mpi.first_rank());
  config.output.name = settle_name(config, environment, world);  // one that was a spare does not know it yet
  std::optional<record::RunHolder> holder;                       // rank 0's
  std::optional<state::ResumePoint> resume;
  if (!config.dry_run) {
    const comm::LongPhase reading(world, config.comm.files_limit_s());
    using Claim = record::RunHolder::Claim;
    on_first_rank(world, [&] {
      holder.emplace(train::run_folder(config), recovery ? Claim::taken_over : Claim::if_free);
    });
    resume = find_resume_point(config, recovery, world);
  }
  if (resume && !config.given.contains("micro-batches"))
    config.batch.micro_batches = resume->info.micro_batches;
  const auto [nodes, ranks] =
      config.cluster.empty() ? std::pair(1, mpi.world_size()) : config.cluster_extents();
  train::settle_device(config, world);
  config.resolve(nodes * ranks);
  config.validate();
  check_on_failure(config, mpi);
  config.output.terminal = environment.terminal;
  config.comm.switches = environment.switches;
  if (!environment.cache_folder.empty()) config.comm.table_file = environment.cache_folder + "/all_reduce";
  config.text = to_toml_without_name(config, named);  // fed back, the file makes a run of its own
  if (resume) {
    check_same_run(config, resume->info, resume->folder.string(),
                   resume->own ? Origin::own_run : Origin::other_run);
    on_first_rank(world, [&] { check_same_dataset(config, *resume); });
  }
  if (config.dry_run) return train::run(config, resume, recovery, mpi, log, starting);
  if (!recovery) look_before_run(world, environment, config, log);
  if (!recovery && mpi.world_size() > 1) log.info(recovery_in_words(config, mpi));
  return run_in_folder(config, resume, recovery, mpi, world, log, starting);
}

/// What the survivors of a loss go on with: the same run on the ranks that are left.
train::RunConfig without_lost_ranks(train::RunConfig config, int ranks) {
  const int of_a_copy = config.mesh_shape.pipe * config.mesh_shape.tensor;
  const bool fits = ranks % of_a_copy == 0;
  config.mesh = fits ? fmt::format("data={},pipe={},tensor={}", ranks / of_a_copy, config.mesh_shape.pipe,
                                   config.mesh_shape.tensor)
                     : fmt::format("data={}", ranks);
  config.output.overwrite = false;
  return config;
}

/// Brings those that are left of the job together, with spares in the places of the lost, until `wanted`
/// ranks are at work; again, should more be lost meanwhile. `known`: the loss, where this rank has left it
/// behind already. Nothing where all are there. `limit_s`: for all to come.
std::optional<train::Recovery> regroup(std::optional<train::Recovery> known, int wanted, double limit_s,
                                       comm::MpiEnvironment& mpi) {
  bool has_left = known.has_value();
  auto recovery = known.value_or(train::Recovery{.lost = {}, .noticed_s = steady_s()});
  while (true) {
    try {
      if (!has_left) {
        const auto loss = mpi.leave_lost_behind(false, limit_s);
        if (loss.gone.empty()) return std::nullopt;
        recovery.lost.insert(recovery.lost.end(), loss.gone.begin(), loss.gone.end());
        recovery.agreed_s = steady_s();
      }
      mpi.call_spares(wanted, limit_s);
      return recovery;
    } catch (const Error& error) {
      if (error.code() != ExitCode::lost_rank) throw;
      has_left = false;
    }
  }
}

/// Trains to the end, through losses; on a spare waits for one, or for the end.
ExitCode train_through_losses(train::RunConfig config, const Environment& environment,
                              comm::MpiEnvironment& mpi, StartNotice* starting) {
  const bool named = !config.output.name.empty();
  const bool recovers = mpi.can_recover() && config.on_failure != "abort";
  std::optional<train::Recovery> recovery;
  while (true) {
    std::optional<train::Recovery> known;
    std::optional<Error> loss;
    const int at_work = mpi.world_size();
    if (mpi.is_spare()) {
      config.resolve(mpi.world_size());  // as the others do: it may take a place among them
      if (const auto end = mpi.wait_for_call()) {
        if (end->why.empty()) return static_cast<ExitCode>(end->exit_code);
        throw Error(end->why, {.code = static_cast<ExitCode>(end->exit_code)});
      }
      loss.emplace("ranks were lost", ErrorContext{.code = ExitCode::lost_rank});
    } else {
      try {
        return train_once(config, recovery, named, environment, mpi, recovery ? nullptr : starting);
      } catch (const train::RanksLost& lost) {
        known = lost.recovery();
        loss.emplace(lost);
      } catch (const Error& error) {
        if (error.code() != ExitCode::lost_rank || !recovers) throw;
        loss.emplace(error);
      }
    }
    const auto topology = recovery ? recovery->topology : std::vector<record::TopologyRow>();
    recovery = regroup(known, at_work, config.comm.watchdog_s, mpi);
    if (!recovery) {  // all are there, and one of them does not come
      RunFolder(train::run_folder(config)).mark_failed();
      throw Error(*loss);
    }
    if (recovery->topology.empty()) recovery->topology = topology;
    config = without_lost_ranks(std::move(config), mpi.world_size());
  }
}

ExitCode train_on(train::RunConfig config, const Environment& environment, comm::MpiEnvironment& mpi,
                  StartNotice* starting) {
  comm::check_launch(mpi.world_size(), environment.srun_tasks);
  config.started_ranks = mpi.first_size();
  if (config.spares == 0 || config.dry_run)
    return train_through_losses(std::move(config), environment, mpi, starting);
  check_spares(config, mpi);
  mpi.keep_spares(config.spares);
  try {
    const auto code = train_through_losses(std::move(config), environment, mpi, starting);
    if (!mpi.is_spare() && mpi.world_rank() == 0) mpi.dismiss_spares(static_cast<int>(code), "");
    return code;
  } catch (const std::exception& error) {
    if (!mpi.is_spare()) mpi.dismiss_spares(static_cast<int>(exit_code(error)), error.what());
    throw;
  }
}

/// `100 ranks, 50 of them on 2 cores here`.
std::string what_starts(const Environment& environment) {
  const int ranks = environment.launcher_size;
  std::string text = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  if (!environment.mpirun) return text;
  const auto cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  return text + fmt::format(", {} of them on {} core{} here", environment.mpirun->local_size, cores,
                            cores == 1 ? "" : "s");
}

/// The file that would be in force; what depends on the number of ranks stays as it was given.
Task print_config(const train::RunConfig& config) {
  train::RunConfig on_one_rank = config;
  on_one_rank.mesh.clear();
  on_one_rank.resolve(1);
  on_one_rank.validate();
  train::RunConfig printed = config;
  if (!config.given.contains("micro-batches")) printed.batch.micro_batches = 0;
  return print_task(to_toml(printed));
}

}  // namespace

Task train_command(const Words& words, const Environment& environment) {
  RunArguments arguments = read_run_arguments(words);
  arguments.config.command_line = fmt::format("dtrain {}", fmt::join(words, " "));
  if (arguments.help) return print_task(*arguments.help);
  if (arguments.print_config) return print_config(arguments.config);
  const double start_limit_s = std::max(kShortestStart_s, arguments.config.comm.watchdog_s);
  const int threads = arguments.config.threads;
  std::shared_ptr<StartNotice> starting;
  if (environment.launcher_rank.value_or(0) == 0 && !arguments.config.output.quiet)
    starting = std::make_shared<StartNotice>(what_starts(environment));
  return {.alone = {},
          .together =
              [config = std::move(arguments.config), environment, starting](comm::MpiEnvironment& mpi) {
                return train_on(config, environment, mpi, starting.get());
              },
          .start_limit_s = start_limit_s,
          .threads = threads,
          .starting = starting};
}

}  // namespace dtrain::app
