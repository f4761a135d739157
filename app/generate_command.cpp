#include <fmt/format.h>

#include <cstdio>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "commands.hpp"
#include "core/regular_file.hpp"
#include "core/span_sink.hpp"
#include "data/formats/text_files.hpp"
#include "h5/library.hpp"
#include "inference/text_model.hpp"
#include "options/command_line.hpp"
#include "options/option_value.hpp"
#include "options/plugin_option.hpp"
#include "run/checkpoint_config.hpp"
#include "train/setup/job.hpp"
#include "train/setup/kept_vocabulary.hpp"

namespace dtrain::app {
namespace {

struct GenerateWords {
  std::string folder;
  std::string prompt;
  std::string translate;
  std::string dataset;
  std::string data_root;
  std::vector<std::string> plugins;
  std::string mesh;
  std::string seed;
  int tokens = 200;
  int beam = 1;
  inference::SamplingConfig sampling;
};

void bind(GenerateWords& words, Parser& parser) {
  parser.add_option("CHECKPOINT", words.folder, "its folder, or a run's, such as runs/NAME, for its best")
      ->required();
  auto* prompt = parser.add_option("--prompt", words.prompt, "start of the text (gpt)")->option_text("TEXT");
  parser
      .add_option("--translate", words.translate,
                  "translate each line of a file, - for standard input (seq2seq)")
      ->option_text("FILE")
      ->excludes(prompt);
  parser.add_option("--max-tokens", words.tokens, "tokens to generate [200]")->option_text("N");
  parser
      .add_option("--temperature", words.sampling.temperature,
                  "temperature of the choice; 0: always the likeliest token [1]")
      ->option_text("R");
  parser.add_option("--top-k", words.sampling.top_k, "choose among the K likeliest tokens; 0: all [0]")
      ->option_text("K");
  parser
      .add_option("--top-p", words.sampling.top_p,
                  "choose among the likeliest tokens whose probabilities add up to P [1]")
      ->option_text("P");
  parser.add_option("--seed", words.seed, "seed of the choices [1]")->option_text("N");
  parser.add_option("--beam", words.beam, "width of the beam search [1]")->option_text("N");
  bind_plugins(parser, words.plugins);
  parser.add_option("--mesh", words.mesh, "ranks along each axis, such as pipe=2 [data=N]")
      ->option_text("AXES");
  parser.add_option("--dataset", words.dataset, "dataset with the vocabulary, if the run no longer keeps it")
      ->option_text("NAME|FOLDER");
  parser.add_option("--data-root", words.data_root, "folder of staged datasets")->option_text("FOLDER");
}

/// An option that would change nothing is refused.
void check_use(const Parser& parser, const GenerateWords& words) {
  const auto refuse = [&](std::initializer_list<const char*> options, const char* use) {
    for (const char* option : options) {
      require(parser.count(option) == 0, fmt::format("is for {}", use),
              {.subject = option, .advice = "leave it out", .code = ExitCode::usage});
    }
  };
  if (words.translate.empty()) return refuse({"--beam"}, "--translate");
  refuse({"--max-tokens", "--temperature", "--top-k", "--top-p", "--seed"}, "a text that is continued");
}

void complete(GenerateWords& words) {
  if (!words.seed.empty()) read_value(words.seed, "seed", words.sampling.seed);
  require(
      !words.prompt.empty() || !words.translate.empty(), "there is nothing to begin with",
      {.subject = "generate", .advice = "give --prompt TEXT, or --translate FILE", .code = ExitCode::usage});
  require(words.tokens >= 1, fmt::format("{} is too small", words.tokens),
          {.subject = "--max-tokens", .advice = "use 1 or more", .code = ExitCode::usage});
  require(words.beam >= 1 && words.beam <= 100, fmt::format("{} is not from 1 to 100", words.beam),
          {.subject = "--beam", .advice = "use 1 for the likeliest word each time", .code = ExitCode::usage});
  words.sampling.validate();
}

std::string text_of(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  return read_regular_file(file, kMostBytes, ExitCode::data);
}

train::RunConfig config_for(const GenerateWords& words) {
  train::RunConfig config = config_of_checkpoint(words.folder);
  if (!words.data_root.empty()) config.data.root = words.data_root;
  config.data.dataset = words.dataset.empty() ? train::dataset_with_vocabulary(config) : words.dataset;
  config.mesh = words.mesh;
  return config;
}

ExitCode generate(const GenerateWords& words, train::RunConfig config, const Environment& environment,
                  comm::MpiEnvironment& mpi) {
  spread_over_ranks(config, environment, mpi);
  NullSpanSink sink;
  h5::Library library;
  train::Job job(config, mpi, sink);
  inference::TextModel model(config, job, library);
  if (!words.translate.empty()) {
    const std::string subject = words.translate == "-" ? "standard input" : words.translate;
    const data::OriginalFile file{
        .name = subject,
        .origin = subject,
        .content = job.world().broadcast(mpi.world_rank() == 0 ? text_of(words.translate) : "", 0)};
    job.end_preparation();
    const auto lines = data::lines_of(file, data::BlankLines::taken);
    const auto translations = model.translate(lines, words.beam, subject);
    if (!model.speaks()) return ExitCode::success;
    for (const std::string& line : translations) fmt::print("{}\n", line);
    return ExitCode::success;
  }
  job.end_preparation();
  model.generate(words.prompt, words.tokens, words.sampling, [&model](std::string_view text) {
    if (!model.speaks()) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  });
  if (model.speaks()) fmt::print("\n");
  return ExitCode::success;
}

}  // namespace

Task generate_command(const Words& words, const Environment& environment) {
  GenerateWords given;
  Parser parser("generate", "Continues a text (gpt) or translates one (seq2seq) with a trained model.");
  bind(given, parser);
  if (const auto help = parse(parser, words)) return print_task(*help);
  check_use(parser, given);
  complete(given);
  models::load_plugins(given.plugins);
  const auto config = config_for(given);
  return {.alone = {},
          .together =
              [given, config, environment](comm::MpiEnvironment& mpi) {
                try {
                  return generate(given, config, environment, mpi);
                } catch (const Error& error) {
                  throw blamed_on_checkpoint(error, given.folder);
                }
              },
          .threads = config.threads};
}

}  // namespace dtrain::app
