#include "checkpoint_config.hpp"

#include <algorithm>

#include "checkpoint/manifest.hpp"
#include "comm/discover.hpp"
#include "option.hpp"
#include "run_arguments.hpp"

namespace dtrain::app {

train::RunConfig config_of_checkpoint(const std::filesystem::path& folder) {
  const auto manifest = checkpoint::read_manifest(folder);
  train::RunConfig config;
  apply_entries(parse_toml(manifest.info.config, folder.string()), folder.string(), config);
  // How it was updated takes no part, and an earlier version may have let pass what this one refuses.
  for (const char* name : {"optimizer", "learning-rate", "min-learning-rate", "momentum", "nesterov", "beta1",
                           "beta2", "epsilon", "weight-decay", "decay", "schedule", "warmup-steps"}) {
    config.given.erase(name);
  }
  config.optimizer = {};
  config.model.freeze.clear();
  resolve_recipe(config);
  config.batch.micro_batches = manifest.info.micro_batches;
  config.batch.global_batch = train::samples_of_largest_piece(config.batch);  // of each rank's, see below
  config.mesh.clear();
  config.device = train::RunConfig().device;  // it need not be there any more
  config.batch.micro_batches = 0;
  for (const char* name : {"mesh", "micro-batches", "device"}) config.given.erase(name);
  config.model.init_from = folder.string();
  config.model.init_skip.clear();
  return config;
}

void spread_over_ranks(train::RunConfig& config, const Environment& environment,
                       const comm::MpiEnvironment& mpi) {
  comm::check_launch(mpi.world_size(), environment.srun_tasks);
  // Checked, and what an evaluation takes at once follows it: as many per rank as in training.
  constexpr int kFewest = 8;  // as many as --reproducible has pieces
  config.batch.global_batch = std::max(config.batch.global_batch, kFewest) * mpi.world_size();
  train::settle_device(config, comm::Communicator::duplicate(mpi.world()));
  config.resolve(mpi.world_size());
  config.validate();
  config.text = to_toml(config);
}

}  // namespace dtrain::app
