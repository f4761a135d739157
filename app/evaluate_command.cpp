#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "commands.hpp"
#include "inference/evaluate_checkpoint.hpp"
#include "options/command_line.hpp"
#include "run/checkpoint_run.hpp"
#include "run/run_contents.hpp"

namespace dtrain::app {
namespace {

constexpr std::array<std::string_view, 3> kSplits = {"train", "validation", "test"};

}  // namespace

Task evaluate_command(const Words& words, const Environment& environment) {
  CheckpointRun run;
  inference::EvaluateRequest request;
  Parser parser("evaluate",
                "Measures a checkpoint on a split of its dataset, on all ranks that mpirun or srun starts.");
  parser.add_option("CHECKPOINT", run.folder, "its folder, or a run's, such as runs/NAME, for its best")
      ->required();
  parser.add_option("--split", request.split, "part of the dataset [test]")
      ->option_text("train|validation|test");
  parser
      .add_option("--predictions", request.predictions,
                  "write each sample's outputs, target and code into this HDF5 file")
      ->option_text("OUT.h5");
  run.bind(parser, "dataset, if not that of the training");
  if (const auto help = parse(parser, words)) return print_task(*help);
  if (std::find(kSplits.begin(), kSplits.end(), request.split) == kSplits.end()) {
    throw usage_error(fmt::format("there is no split {}", request.split), "--split",
                      fmt::format("use one of {}", fmt::join(kSplits, ", ")));
  }
  if (!request.predictions.empty()) require_not_kept("--predictions", request.predictions);
  return run.task(environment,
                  [request](const train::RunConfig& config, comm::MpiEnvironment& mpi, const Log& log) {
                    inference::evaluate_checkpoint(config, request, mpi, log);
                  });
}

}  // namespace dtrain::app
