#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "checkpoint_config.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "core/log.hpp"
#include "core/regular_file.hpp"
#include "train/inference/evaluate_checkpoint.hpp"

namespace dtrain::app {
namespace {

constexpr std::array<std::string_view, 3> kSplits = {"train", "validation", "test"};

ExitCode evaluate_on(train::RunConfig config, const train::EvaluateRequest& request,
                     const Environment& environment, comm::MpiEnvironment& mpi) {
  spread_over_ranks(config, environment, mpi);
  const Log log(mpi.world_rank(), Log::Verbosity::normal);
  train::evaluate_checkpoint(config, request, mpi, log);
  return ExitCode::success;
}

}  // namespace

Task evaluate_command(const Words& words, const Environment& environment) {
  std::string folder;
  std::string dataset;
  std::string data_root;
  std::string mesh;
  std::string device;
  int threads = -1;
  int eval_batch = -1;
  train::EvaluateRequest request;
  Parser parser("evaluate",
                "Measures a checkpoint on a split of its dataset, on all ranks that mpirun or srun starts.");
  parser.add_option("CHECKPOINT", folder, "its folder, such as runs/NAME/checkpoints/best")->required();
  parser.add_option("--split", request.split, "train, validation or test [test]")->option_text("NAME");
  parser
      .add_option("--predictions", request.predictions,
                  "write each sample's outputs, target and code into this HDF5 file")
      ->option_text("OUT.h5");
  parser.add_option("--dataset", dataset, "dataset, if not that of the training")->option_text("NAME|FOLDER");
  parser.add_option("--data-root", data_root, "folder of staged datasets")->option_text("FOLDER");
  parser.add_option("--mesh", mesh, "ranks along each axis, such as data=2,pipe=2 [data=N]")
      ->option_text("AXES");
  parser.add_option("--device", device, "device of the ranks: auto, cpu, cuda [auto]")->option_text("NAME");
  parser.add_option("--threads", threads, "compute threads per rank; 0: from the affinity mask")
      ->option_text("N");
  parser.add_option("--eval-batch", eval_batch, "samples that a rank evaluates at once; 0: as memory allows")
      ->option_text("N");
  if (const auto help = parse(parser, words)) return print_task(*help);
  if (std::find(kSplits.begin(), kSplits.end(), request.split) == kSplits.end()) {
    throw usage_error(fmt::format("there is no split {}", request.split), "--split",
                      fmt::format("use one of {}", fmt::join(kSplits, ", ")));
  }
  if (!request.predictions.empty()) require_writable_place(request.predictions, ExitCode::usage);
  train::RunConfig config = config_of_checkpoint(folder);
  if (!dataset.empty()) config.data.dataset = dataset;
  if (!data_root.empty()) config.data.root = data_root;
  config.mesh = mesh;
  if (!device.empty()) config.device = device;
  if (threads >= 0) config.threads = threads;
  if (eval_batch >= 0) config.batch.evaluation = eval_batch;
  return {.alone = {},
          .together =
              [config, request, environment](comm::MpiEnvironment& mpi) {
                try {
                  return evaluate_on(config, request, environment, mpi);
                } catch (const Error& error) {
                  throw blamed_on_checkpoint(error, config.model.init_from);
                }
              },
          .threads = config.threads};
}

}  // namespace dtrain::app
