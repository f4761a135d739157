#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "command_line.hpp"
#include "commands.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "parallel/pipeline/simulation.hpp"

namespace dtrain::app {
namespace {

constexpr int kMostDrawn = 64;  // ranks, stages or micro-batches

struct PlanWords {
  std::string schedule = "1f1b";
  int pipe = 2;
  int virtual_stages = 2;
  int micro_batches = 0;
};

void check_count(int value, const char* option) {
  require(value >= 1 && value <= kMostDrawn, fmt::format("{} is not from 1 to {}", value, kMostDrawn),
          {.subject = option, .advice = "give a number that a screen has room for", .code = ExitCode::usage});
}

ExitCode plan(const PlanWords& words) {
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

}  // namespace

Task plan_command(const Words& words, const Environment&) {
  PlanWords given;
  Parser parser("plan", "Draws the order of work of a pipeline's ranks, and their idle time.");
  parser.add_option("--schedule", given.schedule, "1f1b, gpipe, interleaved or layerwise [1f1b]")
      ->option_text("NAME");
  parser.add_option("--pipe", given.pipe, "ranks of the pipeline [2]")->option_text("P");
  parser
      .add_option("--virtual-stages", given.virtual_stages,
                  "stages per rank, with --schedule interleaved [2]")
      ->option_text("V");
  parser.add_option("--micro-batches", given.micro_batches, "micro-batches of a step [4 P]")
      ->option_text("M");
  if (const auto help = parse(parser, words)) return print_task(*help);
  parallel::parse_pipelining(given.schedule);
  check_count(given.pipe, "--pipe");
  check_count(given.virtual_stages, "--virtual-stages");
  if (given.micro_batches == 0) given.micro_batches = std::min(4 * given.pipe, kMostDrawn);
  check_count(given.micro_batches, "--micro-batches");
  return {.alone = [given] { return plan(given); }, .together = {}};
}

}  // namespace dtrain::app
