#include "run/checkpoint_run.hpp"

#include "core/error.hpp"
#include "options/command_line.hpp"
#include "options/plugin_option.hpp"
#include "run/checkpoint_config.hpp"

namespace dtrain::app {

void CheckpointRun::bind(Parser& parser, const std::string& about_dataset) {
  parser.add_option("--dataset", dataset, about_dataset)->option_text("NAME|FOLDER");
  parser.add_option("--data-root", data_root, "folder of staged datasets")->option_text("FOLDER");
  bind_plugins(parser, plugins);
  parser.add_option("--mesh", mesh, "ranks along each axis, such as data=2,pipe=2 [data=N]")
      ->option_text("AXES");
  parser.add_option("--device", device, "device of the ranks [auto]")->option_text("auto|cpu|cuda");
  parser.add_option("--threads", threads, "compute threads per rank; 0: from the affinity mask")
      ->option_text("N");
  parser.add_option("--eval-batch", eval_batch, "samples that a rank evaluates at once; 0: as memory allows")
      ->option_text("N");
}

Task CheckpointRun::task(const Environment& environment, const Action& action) const {
  models::load_plugins(plugins);
  train::RunConfig config = config_of_checkpoint(folder);
  if (!dataset.empty()) config.data.dataset = dataset;
  if (!data_root.empty()) config.data.root = data_root;
  config.mesh = mesh;
  if (!device.empty()) config.device = device;
  if (threads >= 0) config.threads = threads;
  if (eval_batch >= 0) config.batch.evaluation = eval_batch;
  return {.alone = {},
          .together =
              [config, environment, action](comm::MpiEnvironment& mpi) {
                try {
                  train::RunConfig settled = config;
                  spread_over_ranks(settled, environment, mpi);
                  action(settled, mpi, Log(mpi.world_rank(), Log::Verbosity::normal));
                  return ExitCode::success;
                } catch (const Error& error) {
                  throw blamed_on_checkpoint(error, config.model.init_from);
                }
              },
          .threads = config.threads};
}

}  // namespace dtrain::app
