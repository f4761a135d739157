#include <string>

#include "checkpoint_config.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "core/log.hpp"
#include "core/regular_file.hpp"
#include "train/inference/predict.hpp"

namespace dtrain::app {
namespace {

ExitCode predict_on(train::RunConfig config, const train::PredictRequest& request,
                    const Environment& environment, comm::MpiEnvironment& mpi) {
  spread_over_ranks(config, environment, mpi);
  const Log log(mpi.world_rank(), Log::Verbosity::normal);
  train::predict(config, request, mpi, log);
  return ExitCode::success;
}

}  // namespace

Task predict_command(const Words& words, const Environment& environment) {
  std::string folder;
  std::string from;
  std::string dataset;
  std::string data_root;
  std::string mesh;
  std::string device;
  int threads = -1;
  int eval_batch = -1;
  train::PredictRequest request;
  Parser parser(
      "predict",
      "Says what new data without targets are, on all ranks that mpirun or srun starts. The inputs are "
      "transformed as those of the training were.");
  parser.add_option("CHECKPOINT", folder, "its folder, such as runs/NAME/checkpoints/best")->required();
  parser
      .add_option(
          "--from", from,
          "the new data: a CSV file with the training's columns in any order, a .npy array of rows or "
          "images, a folder of PNG and JPEG images, or lines of text")
      ->option_text("DATA")
      ->required();
  parser
      .add_option("--output", request.output,
                  "write classes by name and probabilities, or the values of a regression, into this file")
      ->option_text("OUT.csv|OUT.h5")
      ->required();
  parser.add_option("--ignore", request.data.ignore, "CSV: columns to leave out, separated by commas")
      ->option_text("COLS");
  parser
      .add_option("--na-values", request.data.na_values,
                  "CSV: what counts as a gap beside NA and its like, separated by commas")
      ->option_text("TEXTS");
  parser.add_option("--dataset", dataset, "text: dataset with the vocabulary, if it has moved")
      ->option_text("NAME|FOLDER");
  parser.add_option("--data-root", data_root, "folder of staged datasets")->option_text("FOLDER");
  parser.add_option("--mesh", mesh, "ranks along each axis, such as data=2,pipe=2 [data=N]")
      ->option_text("AXES");
  parser.add_option("--device", device, "device of the ranks: auto, cpu, cuda [auto]")->option_text("NAME");
  parser.add_option("--threads", threads, "compute threads per rank; 0: from the affinity mask")
      ->option_text("N");
  parser.add_option("--eval-batch", eval_batch, "samples that a rank evaluates at once; 0: as memory allows")
      ->option_text("N");
  if (const auto help = parse(parser, words)) return print_task(*help);
  if (!request.output.ends_with(".csv") && !request.output.ends_with(".h5"))
    throw usage_error("ends neither in .csv nor in .h5", "--output " + request.output,
                      "say which kind of file it is to be by its ending");
  require_writable_place(request.output, ExitCode::usage);
  request.data.from = from;
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
                  return predict_on(config, request, environment, mpi);
                } catch (const Error& error) {
                  throw blamed_on_checkpoint(error, config.model.init_from);
                }
              },
          .threads = config.threads};
}

}  // namespace dtrain::app
