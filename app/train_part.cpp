#include "train_part.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "comm/mpi/communicator.hpp"
#include "comm/survey/discover.hpp"
#include "comm/watch/shared_failure.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/printable.hpp"
#include "data/shards/dataset.hpp"
#include "failure.hpp"
#include "options/fabric_file.hpp"
#include "options/option.hpp"
#include "parallel/device/rank_device.hpp"
#include "preflight.hpp"
#include "record/run_folder.hpp"
#include "run/checkpoint_config.hpp"
#include "run/run_folder.hpp"
#include "run/same_run.hpp"
#include "state/kept_program.hpp"
#include "state/resume_point.hpp"
#include "state/transformations.hpp"
#include "train/config/federated_setting.hpp"
#include "train/loop/run.hpp"
#include "train/loop/run_outputs.hpp"
#include "train/recovery/recovery_options.hpp"
#include "train/setup/memory_choice.hpp"

namespace dtrain::app {
namespace {

/// Does `action` on rank 0; its Error is thrown on every rank.
template <typename Action>
void on_first_rank(const comm::Communicator& world, Action action) {
  std::optional<Error> failure;
  if (world.rank() == 0) {
    try {
      action();
    } catch (const std::exception& thrown) {
      failure = as_error(thrown);
    }
  }
  if (const auto shared = comm::first_failure(failure, world)) throw Error(*shared);
}

/// `begun_from`: the checkpoint of another run that this one was begun from; empty: none.
std::string to_toml_without_name(train::RunConfig config, bool named, const std::string& begun_from) {
  if (!named) config.output.name.clear();
  if (!begun_from.empty()) config.output.resume = begun_from;
  config.output.overwrite = false;  // said of the run before
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

/// What rank 0 finds in the folder of a run that goes on, on all ranks. Collective.
std::optional<RunFolder::Earlier> earlier_of(const RunFolder& folder, const comm::Communicator& world) {
  RunFolder::Earlier found;
  if (world.rank() == 0) found = folder.earlier();
  const std::string state = found.state ? std::string(record::status_name(*found.state)) : "";
  return RunFolder::Earlier{.state = record::parse_status(world.broadcast(state, 0)),
                            .config_toml = world.broadcast(found.config_toml, 0)};
}

bool is_refusal(ExitCode code) {
  return code == ExitCode::usage || code == ExitCode::data || code == ExitCode::checkpoint;
}

/// The run's folder from its first state to its last. Only rank 0 writes the state of a run that went well.
ExitCode run_in_folder(train::RunConfig& config, const std::optional<state::ResumePoint>& resume,
                       train::Recovery& recovery, comm::MpiEnvironment& mpi, const comm::Communicator& world,
                       const Log& log, StartNotice* starting) {
  const RunFolder folder(train::run_folder(config));
  const bool replaces = config.output.overwrite;
  const auto contents = replaces                         ? RunFolder::Contents::replaced
                        : resume && resume->own          ? RunFolder::Contents::kept
                        : recovery.goes_on()             ? RunFolder::Contents::kept
                        : config.output.resume == "none" ? RunFolder::Contents::none
                                                         : RunFolder::Contents::unsaved;
  // A loss ends no command that was refused: what goes on after one has made its steps.
  const bool resumes = contents == RunFolder::Contents::kept && !recovery.goes_on();
  const auto earlier = resumes ? earlier_of(folder, world) : std::nullopt;
  const auto prepare = [&] {
    const comm::LongPhase removing(world, config.files_limit_s());  // of what an earlier run has left
    on_first_rank(world, [&] {
      for (const std::string& name : folder.prepare(contents, config.text))
        std::cerr << "dtrain: " << printable((folder.path() / name).string())
                  << " is left: dtrain did not write it" << std::endl;
    });
    config.output.overwrite = false;  // from here on it is this run that lies there
  };
  bool has_opened_files = false;
  bool has_begun = false;
  train::Starting starts{.notice = starting, .before_steps = [&has_begun] { has_begun = true; }};
  if (replaces) on_first_rank(world, [&] { folder.check_replaceable(); });
  starts.before_files = [&] {
    if (replaces) prepare();
    has_opened_files = true;
  };
  if (!replaces) prepare();
  try {
    check_seen_by_all(folder, world);
    const ExitCode code = train::run(config, resume, recovery, mpi, log, starts);
    if (!recovery.moves())
      on_first_rank(world, [&] { record::write_state(folder.path().string(), status_of(code)); });
    return code;
  } catch (const Error& error) {
    // With its files open a completed run has lost the results of its test: it is no longer what it was.
    const bool stands = earlier && earlier->state && !has_begun &&
                        (!has_opened_files || *earlier->state != record::Status::completed);
    if (stands && is_refusal(error.code())) {
      folder.put_back(*earlier);
    } else if (!recovery.has_left()) {
      mark_failed(config);
    }
    throw;
  } catch (...) {
    // Whichever rank it was: the others may not come so far. Where ranks were left behind the run goes on.
    if (!recovery.has_left()) mark_failed(config);
    throw;
  }
}

/// Where the run is to go on, if anywhere. `goes_on`: after a loss. Collective.
std::optional<state::ResumePoint> find_resume_point(const train::RunConfig& config, bool goes_on,
                                                    const comm::Communicator& world) {
  const std::string& resume = config.output.resume;
  if (resume.empty())
    throw usage_error("nothing is named", "--resume", "use auto, none or a checkpoint's folder");
  const bool is_path = resume != "auto" && resume != "none";
  const bool from_start = !goes_on || config.output.overwrite;  // what lies there is not this run's
  const RunFolder folder(train::run_folder(config));
  const auto first_rank_finds = [&world](const auto& look) {
    bool found = false;
    on_first_rank(world, [&] { found = look(); });
    return world.max(static_cast<std::int64_t>(found)) == 1;
  };
  const bool again =
      is_path && !config.output.overwrite && first_rank_finds([&] { return folder.was_begun_from(resume); });
  if (from_start && is_path && !again) return state::resume_point(resume, world);
  if (config.output.overwrite || (!goes_on && resume == "none")) return std::nullopt;
  const auto can_go_on = [&] { return goes_on ? folder.has_checkpoints() : folder.can_go_on(config); };
  if (first_rank_finds(can_go_on)) return state::newest_valid(train::checkpoints_folder(config), world);
  return is_path ? std::optional(state::resume_point(resume, world)) : std::nullopt;
}

/// The checkpoint of another run that the run which goes on was begun from: its folder must go on to say it,
/// or the command that began it is refused when a job comes back to the queue. Collective.
std::string begun_from(const train::RunConfig& config, const std::optional<state::ResumePoint>& resume,
                       const comm::Communicator& world) {
  if (!resume || !resume->own) return {};
  std::string path;
  on_first_rank(world, [&] { path = RunFolder(train::run_folder(config)).begun_from(); });
  return world.broadcast(path, 0);
}

/// A run that resumes cuts its steps into as many micro-batches as before, unless the user says otherwise.
/// Throws Error (exit code 2) where the steps have fewer samples now.
void keep_micro_batches(train::RunConfig& config, const state::ResumePoint& resume) {
  if (config.given.contains("micro-batches") || train::is_federated(config)) return;  // clients have one
  const int kept = resume.info.micro_batches;
  config.batch.micro_batches = kept;
  const int batch = config.batch.global_batch;
  if (kept <= batch) return;
  const bool may_change = !resume.own && config.output.optimizer_state != "exact";
  const std::string fewer = fmt::format("--micro-batches {} or fewer", batch);
  throw usage_error(
      fmt::format("{} samples cannot feed the {} micro-batches of a step that the run keeps from {}", batch,
                  kept, printable(resume.folder.string())),
      fmt::format("--global-batch {}", batch),
      may_change
          ? fmt::format("add {}", fewer)
          : fmt::format("keep --global-batch {}, or begin a run of another name from this checkpoint with "
                        "--resume, --optimizer-state keep and {}",
                        global_batch_of(resume.info, resume.folder.string()), fewer));
}

/// The model of a run that goes on: the program of `--model` may be gone, but the run has kept what it
/// computes, and the checkpoint has its weights.
std::string model_of(const train::RunConfig& config, const state::ResumePoint& resume) {
  std::error_code ignored;
  const std::string& named = config.model.name;
  const bool gone = models::is_program_file(named) && !std::filesystem::exists(named, ignored);
  return gone ? state::kept_program(resume.folder, named) : named;
}

void use_kept_program(train::RunConfig& config, const state::ResumePoint& resume, const Log& log) {
  const std::string named = config.model.name;
  const std::string kept = model_of(config, resume);
  if (kept == named) return;
  log.info(fmt::format("{} is not there; the run goes on with the program that it kept, {}", printable(named),
                       printable(kept)));
  config.model.given_name = named;
  config.model.name = kept;
}

/// A rank that was a spare does not know into how many --memory-limit has cut the steps: more than none
/// would. Collective.
void learn_micro_batches(train::RunConfig& config, const comm::Communicator& world) {
  if (config.pipeline.memory_limit_bytes() == 0 || config.given.contains("micro-batches")) return;
  config.batch.micro_batches = static_cast<int>(world.max(std::int64_t{config.batch.micro_batches}));
}

/// What --memory-limit leaves open rank 0 chooses for all. Collective. Throws Error (exit code 2) where
/// nothing fits.
void choose_by_memory(train::RunConfig& config, const std::optional<state::ResumePoint>& resume,
                      const train::Recovery& recovery, const Environment& environment,
                      const comm::Communicator& world) {
  config.pipeline.chosen.clear();
  const auto open = train::open_options(config, !resume && !recovery.goes_on());
  if (!open.any()) return;
  const comm::LongPhase reading(world, config.files_limit_s());
  const auto found = topology::on_fabric(
      comm::discover_cluster(world, comm::affinity_mask(), {}, environment.switches), config.fabric);
  train::MemoryChoice choice;
  on_first_rank(world, [&] {
    h5::Library library;
    const auto [nodes, ranks] = config.cluster.empty() ? std::pair(0, 0) : config.cluster_extents();
    const auto cluster = config.cluster.empty() ? found : topology::uniform_cluster(nodes, ranks);
    train::RunConfig here = config;
    if (resume) here.model.name = model_of(config, *resume);
    choice = train::choose_within_limit(here, open, cluster, recovery.may_lose_ranks(), library);
  });
  config.strategy = world.broadcast(choice.strategy, 0);
  config.pipeline.recompute = world.broadcast(choice.recompute, 0);
  config.batch.micro_batches = static_cast<int>(world.max(std::int64_t{choice.micro_batches}));
  config.pipeline.chosen = world.broadcast(choice.words, 0);
}

/// Of a run that replaces another: what it reads may not lie there. Throws Error (exit code 2).
void check_not_replaced(const train::RunConfig& config) {
  const auto whole = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(path, ignored);
  };
  const auto run = whole(train::run_folder(config));
  const auto check = [&](const char* option, const std::string& path) {
    std::error_code ignored;
    if (path.empty() || !std::filesystem::exists(path, ignored)) return;
    const auto inside = whole(path);
    if (std::ranges::mismatch(run, inside).in1 != run.end()) return;
    throw usage_error(fmt::format("{} is in the run that --overwrite is to replace", option), path,
                      "take another --name");
  };
  check("--init-from", config.model.init_from);
  check("--resume", config.output.resume);
  check("--model", config.model.name);
  check("--dataset", config.data.dataset);
  check("--data-root", config.data.root);
}

/// What is made anew at each start is known by its seed.
void check_same_dataset(const train::RunConfig& config, const state::ResumePoint& resume) {
  if (config.data.dataset == "synthetic") return;
  const auto info = data::read_dataset_info(data::find_dataset(config.data.dataset, config.data.root));
  state::check_same_dataset(resume, state::identity_of(info), info.name,
                            global_batch_of(resume.info, resume.folder.string()));
}

/// What the run is called: where the user gave no name, one of its own, but in Slurm the job's. Collective.
std::string settle_name(const train::RunConfig& config, const Environment& environment,
                        const comm::Communicator& world) {
  std::string name = config.output.name;
  on_first_rank(world, [&] {
    if (!name.empty()) return;
    name = default_name(config, environment);
    const bool makes_folder = !config.dry_run && !environment.slurm_job_id && !config.output.folder.empty();
    if (makes_folder) name = make_own_folder(config.output.folder, name);
  });
  return world.broadcast(name, 0);
}

}  // namespace

void mark_failed(const train::RunConfig& config) noexcept {
  const RunFolder folder(train::run_folder(config));
  if (!config.output.overwrite || !folder.is_of_run()) folder.mark_failed();
}

double start_limit_s(const train::RunConfig& config) {
  constexpr double kShortest = 60;  // however short the watchdog's is
  return std::max(kShortest, config.comm.timeout_s);
}

ExitCode train_part(train::RunConfig& config, train::Recovery& recovery, bool named,
                    const Environment& environment, comm::MpiEnvironment& mpi, StartNotice* starting,
                    KeptFolder& holder) {
  const bool goes_on = recovery.goes_on();
  // A rank that was a spare has the name that was given.
  if (!config.model.given_name.empty()) config.model.name = std::exchange(config.model.given_name, {});
  if (starting != nullptr) starting->at("the ranks agree on their options");
  const auto world = comm::Communicator::duplicate(mpi.world(), start_limit_s(config));
  Log log(mpi.world_rank(), config.output.quiet ? Log::Verbosity::quiet : Log::Verbosity::normal);
  log.call_rank(mpi.first_rank());
  using Voice = comm::StopSignals::Voice;
  // Heard from here on, though a step must be done before the run stops.
  if (!config.dry_run) recovery.signals(mpi.world_rank() == 0 ? Voice::speaks : Voice::silent);
  config.output.name = settle_name(config, environment, world);  // one that was a spare does not know it yet
  // Where one of the ranks has seen the earlier run go, it is gone.
  config.output.overwrite = world.max(std::int64_t{config.output.overwrite ? 0 : 1}) == 0;
  // Each rank finds the same: where one does not, the job says that their options differ.
  if (!config.model.init_from.empty())
    config.model.init_from = named_checkpoint(config.model.init_from).string();
  if (config.output.overwrite && !config.dry_run) on_first_rank(world, [&] { check_not_replaced(config); });
  std::optional<state::ResumePoint> resume;
  if (!config.dry_run) {
    const comm::LongPhase reading(world, config.files_limit_s());
    using Claim = record::RunHolder::Claim;
    on_first_rank(world, [&] {
      if (!holder) holder.emplace(train::run_folder(config), goes_on ? Claim::taken_over : Claim::if_free);
    });
    resume = find_resume_point(config, goes_on, world);
  }
  if (resume) keep_micro_batches(config, *resume);
  if (!resume && goes_on) learn_micro_batches(config, world);
  const auto [nodes, ranks] =
      config.cluster.empty() ? std::pair(1, mpi.world_size()) : config.cluster_extents();
  config.device = parallel::settled_device(config.device, world);
  if (!config.emulate.empty() && !config.fabric.exists()) config.fabric = read_fabric(config.emulate);
  config.resolve(nodes * ranks);
  config.validate();
  choose_by_memory(config, resume, recovery, environment, world);
  train::check_on_failure(config, mpi.can_recover());
  config.output.terminal = environment.terminal;
  config.switches = environment.switches;
  if (!environment.cache_folder.empty()) config.table_file = environment.cache_folder + "/all_reduce";
  // Fed back, the file makes a run of its own.
  config.text = to_toml_without_name(config, named, begun_from(config, resume, world));
  if (resume) {
    check_same_run(config, resume->info, resume->folder.string(),
                   resume->own ? Origin::own_run : Origin::other_run);
    on_first_rank(world, [&] { check_same_dataset(config, *resume); });
  }
  if (resume) use_kept_program(config, *resume, log);
  if (config.dry_run) return train::run(config, resume, recovery, mpi, log, {.notice = starting});
  if (!goes_on) look_before_run(world, environment, config, log);
  if (!goes_on && mpi.world_size() > 1) log.info(train::recovery_in_words(config, mpi.can_recover()));
  return run_in_folder(config, resume, recovery, mpi, world, log, starting);
}

}  // namespace dtrain::app
