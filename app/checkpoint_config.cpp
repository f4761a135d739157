#include "checkpoint_config.hpp"

#include "checkpoint/manifest.hpp"
#include "run_arguments.hpp"

namespace dtrain::app {

train::RunConfig config_of_checkpoint(const std::filesystem::path& folder) {
  const auto manifest = checkpoint::read_manifest(folder);
  train::RunConfig config;
  apply_entries(parse_toml(manifest.info.config, folder.string()), folder.string(), config);
  resolve_recipe(config);
  config.mesh.clear();
  config.batch.micro_batches = 0;
  for (const char* name : {"mesh", "micro-batches"}) config.given.erase(name);
  config.model.init_from = folder.string();
  config.model.init_skip.clear();
  return config;
}

}  // namespace dtrain::app
