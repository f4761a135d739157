#include "run/checkpoint_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "comm/survey/discover.hpp"
#include "core/outside.hpp"
#include "core/printable.hpp"
#include "options/option.hpp"
#include "options/recipe.hpp"
#include "options/run_arguments.hpp"
#include "options/toml_file.hpp"
#include "parallel/device/rank_device.hpp"
#include "state/kept_program.hpp"

namespace dtrain::app {

namespace {

constexpr int kFewestSamples = 8;  // as many as --reproducible has pieces
constexpr const char* kTakeAnother = "take another checkpoint";

/// What says which model it is and how its outputs are measured. All else of a checkpoint's configuration is
/// about the run that wrote it: where it copied, what it started and what it left behind is for the user of
/// this command to say, and an earlier version may have let pass what this one refuses.
const std::set<std::string>& kept_keys() {
  static const std::set<std::string> kKeys = {"model",     "model-option", "loss",        "dataset",
                                              "data-root", "global-batch", "kernels",     "precision",
                                              "seed",      "batch-norm",   "reproducible"};
  return kKeys;
}

/// Throws Error (exit code 2) where the values cannot be those of a run.
void check_alone(train::RunConfig config) {
  config.batch.global_batch = std::max(config.batch.global_batch, kFewestSamples);
  config.resolve(1);
  config.validate();
}

train::RunConfig config_of(const checkpoint::Manifest& manifest, const std::string& origin) {
  auto entries = parse_toml(manifest.info.config, origin);
  train::RunConfig unused;
  apply_entries(entries, origin, unused);  // refuses what is no configuration
  std::erase_if(entries, [](const FileEntry& entry) { return !kept_keys().contains(entry.key); });
  train::RunConfig config;
  apply_entries(entries, origin, config);
  apply_recipe(config);
  config.data.augment = train::RunConfig().data.augment;  // of training alone
  require(config.batch.global_batch >= 1,
          fmt::format("a global-batch of {} is a step without samples", config.batch.global_batch),
          {.subject = origin});
  require(manifest.info.micro_batches >= 1,
          fmt::format("{} micro-batches are a step without samples", manifest.info.micro_batches),
          {.subject = origin});
  config.batch.micro_batches = manifest.info.micro_batches;
  config.batch.global_batch = train::samples_of_largest_piece(config.batch);  // of each rank's, see below
  config.mesh.clear();
  config.device = train::RunConfig().device;  // it need not be there any more
  config.batch.micro_batches = 0;
  for (const char* name : {"mesh", "micro-batches", "device"}) config.given.erase(name);
  check_alone(config);
  return config;
}

}  // namespace

std::filesystem::path named_checkpoint(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder / "manifest.json", ignored)) return folder;
  for (const char* const link : {"best", "last"}) {
    const auto checkpoint = folder / "checkpoints" / link;
    if (std::filesystem::exists(checkpoint / "manifest.json", ignored)) return checkpoint;
  }
  return folder;
}

train::RunConfig config_of_checkpoint(const std::filesystem::path& named) {
  const auto folder = named_checkpoint(named);
  const std::string origin = (folder / "manifest.json").string();
  const ErrorContext context{.subject = origin, .advice = kTakeAnother, .code = ExitCode::checkpoint};
  train::RunConfig config;
  try {
    config = understand_from_outside(context,
                                     [&] { return config_of(checkpoint::read_manifest(folder), origin); });
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    // It names an option, but the user has given none.
    const bool added = error.subject().starts_with("--model") || error.subject().starts_with("--loss");
    throw checkpoint_error(fmt::format("its configuration cannot be used ({}: {})",
                                       printable(error.subject(), 100), printable(error.problem(), 200)),
                           origin,
                           added ? "give --plugin again if a plug-in brought that, since a checkpoint loads "
                                   "none, or take another checkpoint"
                                 : kTakeAnother);
  }
  config.model.init_from = folder.string();
  config.model.name = state::kept_program(folder, config.model.name);
  config.model.golden = "off";  // that was of its first weights
  return config;
}

Error blamed_on_checkpoint(const Error& error, const std::filesystem::path& folder) {
  if (error.code() != ExitCode::usage || !error.subject().starts_with("--model")) return error;
  return checkpoint_error(
      fmt::format("its model cannot be made ({}: {})", printable(error.subject(), 100), error.problem()),
      (folder / "manifest.json").string(), kTakeAnother);
}

void spread_over_ranks(train::RunConfig& config, const Environment& environment,
                       const comm::MpiEnvironment& mpi) {
  comm::check_launch(mpi.world_size(), environment.srun_tasks);
  // Checked, and what an evaluation takes at once follows it: as many per rank as in training.
  config.batch.global_batch = std::max(config.batch.global_batch, kFewestSamples) * mpi.world_size();
  config.device = parallel::settled_device(config.device, comm::Communicator::duplicate(mpi.world()));
  config.resolve(mpi.world_size());
  config.validate();
  config.text = to_toml(config);
}

}  // namespace dtrain::app
