#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "data/import/format_table.hpp"
#include "data/import/stage.hpp"
#include "data/shards/dataset_folder.hpp"
#include "h5/library.hpp"
#include "options/command_line.hpp"
#include "options/option_value.hpp"
#include "stage/stage_progress.hpp"
#include "stage/stage_summary.hpp"
#include "stage/stage_words.hpp"

namespace dtrain::app {
namespace {

constexpr int kMostShards = 99'999;  // five digits in their names
constexpr int kMostSamples = 1 << 26;
constexpr int kLargestVocabulary = 1 << 22;
constexpr int kLongestText = 1 << 24;

void check_count(int number, int most, const char* key) {
  require(number >= 1 && number <= most, fmt::format("{} is too {}", number, number < 1 ? "small" : "large"),
          {.subject = fmt::format("--{}", key),
           .advice = number < 1 ? "use 1 or more" : fmt::format("use {} or less", most),
           .code = ExitCode::usage});
}

/// What was said about text, as numbers of at least 1. Throws Error (exit code 2).
void complete_text(StageWords& words) {
  auto& text = words.options.text;
  const auto read = [](const std::string& word, const char* key, int most, std::int64_t& value) {
    if (word.empty()) return;
    int number = 0;
    read_value(word, key, number);
    check_count(number, most, key);
    value = number;
  };
  read(words.vocabulary_size, "vocab-size", kLargestVocabulary, text.vocabulary_size);
  read(words.min_frequency, "min-frequency", std::numeric_limits<int>::max(), text.min_frequency);
  read(words.max_length, "max-length", kLongestText, text.max_length);
}

/// What was said about the originals means nothing where there are none. Throws Error (exit code 2).
void refuse_for_synthetic(const StageWords& words) {
  const auto& options = words.options;
  const auto refuse = [](bool given, const char* option) {
    if (given)
      throw usage_error("means nothing for --format synthetic, which has no originals", option,
                        "leave it out");
  };
  refuse(!words.from.empty(), "--from");
  refuse(!options.inputs.empty(), "--inputs");
  refuse(!options.targets.empty(), "--targets");
  refuse(!options.target.empty(), "--target");
  refuse(!options.ignore.empty(), "--ignore");
  refuse(!options.site.empty(), "--site");
  refuse(!words.validation.empty(), "--validation");
  refuse(!words.test.empty(), "--test");
  refuse(!options.na_values.empty(), "--na-values");
  refuse(!words.image_size.empty(), "--image-size");
  refuse(options.skip_broken, "--skip-broken");
  refuse(!options.standardize.empty(), "--standardize");
  refuse(!options.text.tokenizer.empty(), "--tokenizer");
  refuse(!words.min_frequency.empty(), "--min-frequency");
  refuse(!options.text.languages.empty(), "--languages");
}

/// The task, and the sizes of a text's vocabulary and samples. Throws Error (exit code 2).
void complete_synthetic(StageWords& words) {
  auto& made = words.synthetic;
  if (!words.task.empty()) made.task = words.task;
  const auto& text = words.options.text;
  const char* given = text.vocabulary_size > 0 ? "--vocab-size"
                      : text.max_length > 0    ? "--max-length"
                                               : nullptr;
  const bool has_text =
      made.task == "text_classification" || made.task == "translation" || made.task == "language_modelling";
  if (given != nullptr && !has_text)
    throw usage_error(fmt::format("there is no text in a synthetic set for {}", made.task), given,
                      "leave it out, or use --task text_classification, translation or language_modelling");
  if (text.vocabulary_size > 0) made.vocabulary = text.vocabulary_size;
  if (text.max_length > 0) made.shape = {text.max_length};
}

constexpr int kLargestSide = 8192;

/// `64` or `48x64`. Throws Error (exit code 2).
data::ImageSize image_size_of(const std::string& text) {
  if (text.empty()) return {};
  const auto cross = std::min(text.find('x'), text.size());
  const auto rows = parse_number<int>(text.substr(0, cross));
  const auto columns = cross == text.size() ? rows : parse_number<int>(text.substr(cross + 1));
  const auto fits = [](const std::optional<int>& side) {
    return side && *side >= 1 && *side <= kLargestSide;
  };
  require(fits(rows) && fits(columns), "is no number of rows and columns",
          {.subject = "--image-size " + text,
           .advice = fmt::format("write it like 64 or 48x64, each side from 1 to {}", kLargestSide),
           .code = ExitCode::usage});
  return {.height = *rows, .width = *columns};
}

/// `words.options` and `words.synthetic` complete. Throws Error (exit code 2).
void complete(StageWords& words) {
  auto& options = words.options;
  options.from = words.from;
  options.no_validation = words.validation == "none";
  if (!options.no_validation) options.validation = words.validation;
  options.test = words.test;
  options.image_size = image_size_of(words.image_size);
  options.data_root = words.data_root;
  if (options.standardize == "true") options.standardize = "on";  // the flag alone
  if (!words.seed.empty()) read_value(words.seed, "seed", options.seed);
  if (!words.shards.empty()) {
    read_value(words.shards, "shards", options.shards);
    check_count(options.shards, kMostShards, "shards");
  }
  complete_text(words);
  if (data::has_originals(options.format)) {
    if (!words.samples.empty())
      throw usage_error("all samples of the original files are staged", "--samples",
                        "leave it out, or use --format synthetic");
    require(!words.from.empty(), "the original files are not named",
            {.subject = "--from", .advice = "give their folder or file", .code = ExitCode::usage});
    options.task = words.task;
    return;
  }
  refuse_for_synthetic(words);
  complete_synthetic(words);
  words.synthetic.seed = options.seed;
  int samples = static_cast<int>(words.synthetic.train_samples);
  if (!words.samples.empty()) read_value(words.samples, "samples", samples);
  check_count(samples, kMostSamples, "samples");
  words.synthetic.train_samples = samples;
  words.synthetic.validate();
}

data::DatasetInfo stage_with_progress(const StageWords& words, h5::Library& library, bool terminal,
                                      data::StageReport& report) {
  StageProgress line(stdout, terminal);
  const auto progress = [&line](std::string_view what, double fraction) { line.at(what, fraction); };
  return words.options.format == "synthetic"
             ? data::stage_synthetic(words.options, words.synthetic, library, progress, &report)
             : data::stage(words.options, library, progress, &report);
}

ExitCode stage(const StageWords& words, bool terminal) {
  h5::Library library;
  data::StageReport report;
  const auto info = stage_with_progress(words, library, terminal, report);
  for (const std::string& name : data::others_in(words.options.data_root / info.name))
    fmt::print(stderr, "dtrain: {} is left: dtrain did not write it\n",
               printable((words.options.data_root / info.name / name).string()));
  std::size_t files = 0;
  for (const auto& [name, split] : info.splits) files += split.shards.size();
  fmt::print("{}: train {}, validation {}, test {} samples in {} files\n",
             (words.options.data_root / info.name).string(), info.samples("train"),
             info.samples("validation"), info.samples("test"), files);
  fmt::print("{}", stage_summary(info, report));
  return ExitCode::success;
}

/// `--standardize off` as one word: alone it takes no value, and so none behind a blank either.
Words with_joined_switch(const Words& words) {
  Words joined;
  for (const std::string& word : words) {
    if (!joined.empty() && joined.back() == "--standardize" && (word == "on" || word == "off"))
      joined.back() += "=" + word;
    else
      joined.push_back(word);
  }
  return joined;
}

}  // namespace

Task stage_command(const Words& words, const Environment& environment) {
  StageWords given;
  Parser parser("stage", "Turns original files into HDF5 shards and dataset.json below the data root.");
  bind(given, parser);
  if (const auto help = parse(parser, with_joined_switch(words))) return print_task(*help);
  complete(given);
  given.options.validate();
  return {.alone = [given, terminal = environment.terminal] { return stage(given, terminal); },
          .elsewhere =
              ErrorContext{
                  .subject = given.from, .advice = "take another copy of the files", .code = ExitCode::data},
          .together = {}};
}

}  // namespace dtrain::app
