#include "stage/stage_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "data/import/format_table.hpp"

namespace dtrain::app {
namespace {

/// Where the originals lie, and what they are.
void bind_source(StageWords& words, Parser& parser) {
  auto& options = words.options;
  std::vector<std::string> described;
  for (const data::Format& format : data::formats())
    if (format.read != nullptr) described.emplace_back(format.description);
  parser.add_option("NAME", options.name, "the dataset's name")->required();
  parser
      .add_option("--from", words.from,
                  fmt::format("a folder, file or archive: {}", fmt::join(described, ", ")))
      ->option_text("PATH");
  parser
      .add_option("--format", options.format,
                  fmt::format("one of {} [recognised from content]", fmt::join(data::format_names(), ", ")))
      ->option_text("F");
  parser
      .add_option("--inputs", options.inputs,
                  "HDF5: path of the inputs; npy, npz: their file or array; several: NAME=ARRAY,NAME=ARRAY")
      ->option_text("/x");
  parser.add_option("--targets", options.targets, "HDF5: path of the targets; npy, npz: their file or array")
      ->option_text("/y");
}

/// Of tables of text.
void bind_table(StageWords& words, Parser& parser) {
  auto& options = words.options;
  parser
      .add_option(
          "--target", options.target,
          "table: name or number of the column to predict, or of several with numbers, separated by commas; "
          "COL>VALUE makes two classes [the last]")
      ->option_text("COL");
  parser
      .add_option("--task", words.task,
                  fmt::format("synthetic set: {}; table or arrays: "
                              "table_classification or regression [image_classification; else by the target]",
                              fmt::join(data::synthetic_tasks(), ", ")))
      ->option_text("NAME");
  parser
      .add_option(
          "--validation", words.validation,
          "table: file of the validation split; none, of any data but running text: train keeps all its "
          "samples [a tenth of the rows of --from]")
      ->option_text("FILE|none");
  parser.add_option("--test", words.test, "table: file of the test split [a tenth of the rows of --from]")
      ->option_text("FILE");
  parser
      .add_option("--na-values", options.na_values,
                  "table: what counts as a gap beside NA and its like, separated by commas")
      ->option_text("TEXTS");
  parser.add_option("--ignore", options.ignore, "table: columns to leave out, separated by commas")
      ->option_text("COLS");
  parser
      .add_option("--site", options.site,
                  "table: column with the owner of each row [each of several files is a site]")
      ->option_text("COL");
  // A flag, since alone it means on: tables used to stay as they were without it.
  parser
      .add_flag(
          "--standardize", options.standardize,
          "table, on or off: numbers become (x - mean) / std of train; targets of a regression are trained "
          "on like that, and reported in their units [on]")
      ->option_text("on|off");
}

/// Of images in files.
void bind_images(StageWords& words, Parser& parser) {
  auto& options = words.options;
  parser
      .add_option("--image-size", words.image_size,
                  "images: resize and cut the middle, such as 64 or 48x64 rows and columns [as they are]")
      ->option_text("HxW");
  parser.add_flag("--skip-broken", options.skip_broken, "images: leave out those that cannot be decoded");
}

/// Of text.
void bind_text(StageWords& words, Parser& parser) {
  auto& options = words.options;
  parser.add_option("--tokenizer", options.text.tokenizer, "word, char or sentencepiece [by task]")
      ->option_text("KIND");
  parser
      .add_option("--vocab-size", words.vocabulary_size,
                  "size of the vocabulary, with the four special ids [by task]")
      ->option_text("N");
  parser
      .add_option("--min-frequency", words.min_frequency,
                  "least count of a token in the training text [pairs 2, else 1]")
      ->option_text("N");
  parser
      .add_option("--max-length", words.max_length,
                  "most tokens of a text, or of a block of running text [text: all; block: 256]")
      ->option_text("N");
  parser.add_option("--languages", options.text.languages, "source and target of parallel text [de-en]")
      ->option_text("S-T");
}

/// What is written, and where.
void bind_output(StageWords& words, Parser& parser) {
  auto& options = words.options;
  parser.add_option("--samples", words.samples, "training samples of a synthetic set [8192]")
      ->option_text("N");
  parser.add_option("--shards", words.shards, "files per split [one per 512 MiB]")->option_text("N");
  parser.add_option("--seed", words.seed, "seed of the split into train, validation and test [1]")
      ->option_text("N");
  parser.add_option("--data-root", words.data_root, "folder of staged datasets [data/staged]")
      ->option_text("FOLDER");
  parser.add_flag("--overwrite", options.overwrite, "replace a dataset of that name");
}

}  // namespace

void bind(StageWords& words, Parser& parser) {
  bind_source(words, parser);
  bind_table(words, parser);
  bind_images(words, parser);
  bind_text(words, parser);
  bind_output(words, parser);
}

}  // namespace dtrain::app
