#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "comm/survey/discover.hpp"
#include "commands.hpp"
#include "core/counted.hpp"
#include "core/start_notice.hpp"
#include "options/option.hpp"
#include "options/run_arguments.hpp"
#include "run/run_folder.hpp"
#include "train/config/strategy_setting.hpp"
#include "train/loop/run_outputs.hpp"
#include "train/recovery/run_in_parts.hpp"
#include "train_part.hpp"

namespace dtrain::app {
namespace {

ExitCode train_on(train::RunConfig config, const Environment& environment, comm::MpiEnvironment& mpi,
                  StartNotice* starting) {
  comm::check_launch(mpi.world_size(), environment.srun_tasks);
  config.started_ranks = mpi.first_size();
  const bool named = !config.output.name.empty();
  KeptFolder holder;
  const auto train_here = [&](train::RunConfig& settled, train::Recovery& recovery) {
    return train_part(settled, recovery, named, environment, mpi, recovery.goes_on() ? nullptr : starting,
                      holder);
  };
  return train::run_in_parts(config, {.train = train_here, .mark_failed = mark_failed}, mpi);
}

/// `100 ranks, 50 of them on 2 cores here`.
std::string what_starts(const Environment& environment) {
  const int ranks = environment.launcher_size;
  std::string text = counted(ranks, "rank");
  if (!environment.mpirun) return text;
  const auto cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  return text +
         fmt::format(", {} of them on {} here", environment.mpirun->local_size, counted(cores, "core"));
}

/// The file that would be in force; what depends on the number of ranks stays as it was given.
Task print_config(const train::RunConfig& config) {
  train::RunConfig on_one_rank = config;
  on_one_rank.mesh.clear();
  on_one_rank.resolve(train::fewest_ranks(config));
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
  const double limit_s = start_limit_s(arguments.config);
  const int threads = arguments.config.threads;
  std::shared_ptr<StartNotice> starting;
  if (environment.launcher_rank.value_or(0) == 0 && !arguments.config.output.quiet)
    starting = std::make_shared<StartNotice>(what_starts(environment));
  return {.alone = {},
          .together =
              [config = std::move(arguments.config), environment, starting](comm::MpiEnvironment& mpi) {
                return train_on(config, environment, mpi, starting.get());
              },
          .start_limit_s = limit_s,
          .threads = threads,
          .starting = starting};
}

}  // namespace dtrain::app
