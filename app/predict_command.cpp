#include <filesystem>
#include <string>
#include <system_error>

#include "commands.hpp"
#include "inference/predict.hpp"
#include "options/command_line.hpp"
#include "run/checkpoint_run.hpp"
#include "run/run_contents.hpp"
#include "train/setup/kept_vocabulary.hpp"

namespace dtrain::app {
Task predict_command(const Words& words, const Environment& environment) {
  CheckpointRun run;
  std::string from;
  inference::PredictRequest request;
  Parser parser(
      "predict",
      "Says what new data without targets are, on all ranks that mpirun or srun starts. The inputs are "
      "transformed as those of the training were.");
  parser.add_option("CHECKPOINT", run.folder, "its folder, or a run's, such as runs/NAME, for its best")
      ->required();
  parser
      .add_option(
          "--from", from,
          "the new data: a CSV file with the training's columns in any order, a .npy array of rows or "
          "images, a folder of PNG and JPEG images, lines of text, or arrays of several inputs")
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
  parser
      .add_option("--inputs", request.data.inputs,
                  "a network of several inputs: the array of each in an HDF5 or .npz file or a folder of "
                  ".npy files; without it the arrays have the inputs' names")
      ->option_text("NAME=ARRAY,...");
  run.bind(parser, "text: dataset with the vocabulary, if the run no longer keeps it");
  if (const auto help = parse(parser, words)) return print_task(*help);
  if (!request.output.ends_with(".csv") && !request.output.ends_with(".h5"))
    throw usage_error("ends neither in .csv nor in .h5", "--output " + request.output,
                      "say which kind of file it is to be by its ending");
  require_not_kept("--output", request.output);
  std::error_code absent;
  if (std::filesystem::equivalent(from, request.output, absent))
    throw usage_error("is the file of the new data", "--output " + request.output, "name another file");
  request.data.from = from;
  return run.task(environment, [request, as_trained = run.dataset.empty()](
                                   train::RunConfig config, comm::MpiEnvironment& mpi, const Log& log) {
    if (as_trained) config.data.dataset = train::dataset_with_vocabulary(config);
    inference::predict(config, request, mpi, log);
  });
}

}  // namespace dtrain::app
