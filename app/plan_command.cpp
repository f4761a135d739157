#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "commands.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "h5/library.hpp"
#include "options/command_line.hpp"
#include "options/option.hpp"
#include "options/plugin_option.hpp"
#include "options/recipe.hpp"
#include "parallel/pipeline/simulation.hpp"
#include "plan_meshes.hpp"
#include "plan_text.hpp"

namespace dtrain::app {
namespace {

constexpr int kMostDrawn = 64;  // ranks, stages or micro-batches

struct PlanWords {
  std::string schedule = "1f1b";
  int pipe = 0;
  int virtual_stages = 2;
  int micro_batches = 0;

  // Of the choice of a mesh: as options of train.
  std::string model;
  std::vector<std::string> model_options;
  std::vector<std::string> plugins;
  std::string dataset;
  std::string data_root;
  std::string global_batch;
  std::string optimizer;
  std::string precision;
  std::string device = "cpu";
  std::string cluster;
  std::string memory;
  bool all = false;
};

void check_count(int value, const char* option) {
  require(value >= 1 && value <= kMostDrawn, fmt::format("{} is not from 1 to {}", value, kMostDrawn),
          {.subject = option, .advice = "give a number that a screen has room for", .code = ExitCode::usage});
}

ExitCode draw(const PlanWords& words) {
  const auto pipelining = parallel::parse_pipelining(words.schedule);
  const int stages = pipelining == parallel::Pipelining::interleaved ? words.virtual_stages : 1;
  const auto schedule = parallel::make_schedule(pipelining, words.pipe, stages, words.micro_batches);
  const auto simulation = parallel::simulate(schedule);
  fmt::print("{}: {} ranks, {} each, {} micro-batches; F forward, B backward (twice as long)\n\n{}\n",
             words.schedule, words.pipe, counted(stages, "stage"), words.micro_batches,
             parallel::drawing(schedule));
  fmt::print("idle: {:.1f} % of all ranks' time\n", 100 * simulation.idle_share);
  fmt::print("activations of micro-batches that live at once, at most, by rank:");
  for (const int live : simulation.peak_live) fmt::print(" {}", live);
  fmt::print("\n");
  return ExitCode::success;
}

/// The run that is planned. Throws Error (exit code 2).
train::RunConfig config_of(const PlanWords& words) {
  train::RunConfig config;
  const auto set = [&config](const char* name, const std::string& value) {
    if (value.empty()) return;
    for (const Option& option : run_options())
      if (option.name == name) apply(option, value, config);
  };
  models::load_plugins(words.plugins);
  set("model", words.model);
  for (const auto& option : words.model_options) set("model-option", option);
  set("dataset", words.dataset);
  set("data-root", words.data_root);
  set("global-batch", words.global_batch);
  set("optimizer", words.optimizer);
  set("precision", words.precision);
  require(words.device != "auto", "which device the ranks have is not known before they start",
          {.subject = "--device auto", .advice = "use cpu or cuda", .code = ExitCode::usage});
  set("device", words.device);
  set("pipeline", words.schedule);
  if (words.schedule == "interleaved") set("virtual-stages", std::to_string(words.virtual_stages));
  if (words.micro_batches > 0) set("micro-batches", std::to_string(words.micro_batches));
  set("memory-limit", words.memory);
  config.cluster = words.cluster;
  config.dry_run = true;
  apply_recipe(config);
  config.cluster_extents();
  config.pipeline.memory_limit_bytes();
  return config;
}

ExitCode rank_meshes(const train::RunConfig& config, bool all) {
  h5::Library library;
  const auto plan = plan_meshes(config, library);
  fmt::print("{}", plan_text(config, plan, all));
  std::fflush(stdout);  // before the sentence, which goes to another stream
  require(!plan.fitting.empty(), "the model fits on no mesh of it",
          {.subject = "--cluster " + config.cluster,
           .advice = "see the reasons above; take more --memory, other ranks or another --global-batch",
           .code = ExitCode::failure});
  return ExitCode::success;
}

void bind(PlanWords& given, Parser& parser) {
  parser.add_option("--cluster", given.cluster, "rank the meshes of so many nodes and ranks per node")
      ->option_text("NODESxRANKS");
  parser.add_option("--memory", given.memory, "memory that a rank has, such as 80GiB [any]")
      ->option_text("SIZE");
  parser.add_option("--model", given.model, "the network [mlp]")->option_text("NAME");
  parser.add_option("--model-option", given.model_options, "an option of the model; repeat it for several")
      ->option_text("KEY=VALUE")
      ->allow_extra_args(false);
  bind_plugins(parser, given.plugins);
  parser
      .add_option("--dataset", given.dataset, "synthetic, or a staged dataset by name or folder [synthetic]")
      ->option_text("NAME|FOLDER");
  parser.add_option("--data-root", given.data_root, "folder of staged datasets [data/staged]")
      ->option_text("FOLDER");
  parser.add_option("--global-batch", given.global_batch, "samples per step, over all ranks [by model]")
      ->option_text("N");
  parser.add_option("--optimizer", given.optimizer, "the rule of updates [by model]")
      ->option_text("sgd|adam|adamw");
  parser.add_option("--precision", given.precision, "numbers of the training [fp32]")
      ->option_text("fp32|fp64|bf16|fp16");
  parser
      .add_option("--device", given.device,
                  "device of the ranks: CPU ranks of a node share memory, a GPU has its own [cpu]")
      ->option_text("cpu|cuda");
  parser.add_flag("--all", given.all, "list every mesh that fits, not the first ten");
  parser.add_option("--schedule", given.schedule, "order of a pipeline's work [1f1b]")
      ->option_text("1f1b|eager-1f1b|gpipe|interleaved|layerwise");
  parser.add_option("--pipe", given.pipe, "without --cluster: draw a pipeline of so many ranks [2]")
      ->option_text("P");
  parser
      .add_option("--virtual-stages", given.virtual_stages,
                  "stages per rank, with --schedule interleaved [2]")
      ->option_text("V");
  parser.add_option("--micro-batches", given.micro_batches, "micro-batches of a step [4 P for each copy]")
      ->option_text("M");
}

}  // namespace

Task plan_command(const Words& words, const Environment&) {
  PlanWords given;
  Parser parser(
      "plan",
      "With --cluster ranks the meshes on which a model fits, by estimates from shapes alone. Without "
      "it draws the order of work of a pipeline's ranks, and their idle time.");
  bind(given, parser);
  if (const auto help = parse(parser, words)) return print_task(*help);
  parallel::parse_pipelining(given.schedule);
  check_count(given.virtual_stages, "--virtual-stages");
  require(given.schedule == "interleaved" || parser.count("--virtual-stages") == 0,
          "is of another schedule than " + given.schedule,
          {.subject = "--virtual-stages",
           .advice = "add --schedule interleaved, or leave it out",
           .code = ExitCode::usage});
  require(given.micro_batches > 0 || parser.count("--micro-batches") == 0,
          fmt::format("{} is too small", given.micro_batches),
          {.subject = "--micro-batches", .advice = "use 1 or more", .code = ExitCode::usage});
  if (!given.cluster.empty()) {
    require(given.pipe == 0, "each length of a pipeline is tried",
            {.subject = "--pipe", .advice = "leave it out", .code = ExitCode::usage});
    return {.alone = [config = config_of(given), all = given.all] { return rank_meshes(config, all); },
            .together = {}};
  }
  for (const char* option : {"--model", "--model-option", "--memory", "--dataset", "--global-batch",
                             "--optimizer", "--precision", "--device", "--data-root", "--plugin", "--all"})
    require(parser.count(option) == 0, "is for the choice of a mesh",
            {.subject = option, .advice = "add --cluster NODESxRANKS", .code = ExitCode::usage});
  if (given.pipe == 0 && parser.count("--pipe") == 0) given.pipe = 2;
  check_count(given.pipe, "--pipe");
  if (given.micro_batches == 0) given.micro_batches = std::min(4 * given.pipe, kMostDrawn);
  check_count(given.micro_batches, "--micro-batches");
  return {.alone = [given] { return draw(given); }, .together = {}};
}

}  // namespace dtrain::app
