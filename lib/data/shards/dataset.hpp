#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/source.hpp"

namespace dtrain::h5 {
class Library;
}

namespace dtrain::data {

/// One HDF5 file of a split.
struct ShardInfo {
  std::string file;  ///< Relative to the dataset's folder.
  std::int64_t samples = 0;
  std::string sha256;  ///< Of the whole file, lower-case hexadecimal; empty when the writer gave none.
};

struct SplitInfo {
  std::int64_t samples = 0;
  std::vector<ShardInfo> shards;  ///< In the order of their samples; empty for a dataset in memory.
};

/// An original file that the dataset was made from.
struct SourceInfo {
  std::string file;
  std::string sha256;
};

/// How text became ids: 0 padding, 1 unknown, 2 start, 3 end (Tokenizer::has_special_ids). make_tokenizer
/// (data/text/tokenizer.hpp) makes a tokeniser of it.
struct TokenizerInfo {
  std::string kind;                     ///< word, char, sentencepiece or synthetic.
  std::vector<std::string> vocabulary;  ///< Token of each id; of the source language for pairs.
  std::vector<std::string>
      target_vocabulary;     ///< Of the target language; empty unless the samples are pairs.
  std::string model;         ///< SentencePiece: the serialised model (base64 in the file); otherwise empty.
  std::string target_model;  ///< The same of the target language.
  /// What staging made a space of before it took words, such as `<br />`.
  std::vector<std::string> blanks = {};
};

/// What one input of a table is made of: (value - shift) / scale, a gap counting as `filled_with`. The value
/// of a date is one of its parts.
struct InputColumn {
  std::string name;         ///< Of the original's column; its number from 0 where it has no header.
  std::string label;        ///< Of text: the input is 1 where the original has this label; empty for numbers.
  std::string other = {};   ///< Of two labels the one that is 0; empty where there are more.
  std::string part = {};    ///< Of dates: which of date_parts() (data/formats/dates.hpp); else empty.
  bool marks_gaps = false;  ///< The input is 1 where the original has no value.
  double filled_with = 0;   ///< Mean of train's values; has no meaning where there are no gaps.
  double shift = 0;         ///< Mean of train, or with --standardize off: of `years` the first, else 0.
  double scale = 1;         ///< Standard deviation of train, or with --standardize off: 1.
};

/// How a number of a regression is trained on: as (value - shift) / scale. The shards have the value.
struct TargetScale {
  double shift = 0;  ///< Mean of train.
  double scale = 1;  ///< Standard deviation of train.
  friend bool operator==(const TargetScale&, const TargetScale&) = default;
};

/// One of several inputs, which lie one behind the other in a sample's row of numbers.
struct InputInfo {
  std::string name;
  std::vector<std::int64_t> shape;  ///< Of one sample.
  std::int64_t ids = 0;             ///< Whole numbers below this one; 0: real numbers.
  bool bytes = false;               ///< Images that were bytes, as values in [0, 1].
};

/// Everything dataset.json says.
struct DatasetInfo {
  std::string name;
  std::string task;                  ///< image_classification, table_classification, regression,
                                     ///< text_classification, translation or language_modelling.
  std::vector<std::string> classes;  ///< Names of the classes; empty where there are none.
  std::vector<std::string> targets;  ///< Names of the numbers of a regression on several; empty for one.
  std::vector<TargetScale> target_scales = {};  ///< Of each target; empty: they are trained on as they are.
  std::vector<std::int64_t> target_shape;  ///< [H, W] of a classification of places; empty: of the sample.
  std::vector<std::int64_t> shape;  ///< Of one sample: [C, H, W], [F], [T, F]; [T] for text (its longest).
  std::vector<double> mean;         ///< Per channel, of train's values in [0, 1]; empty for text.
  std::vector<double> std_dev;      ///< `std` in the file; same length as mean.
  std::optional<TokenizerInfo> tokenizer;
  std::vector<InputColumn> columns;  ///< Of a table made from text: what each input is; else empty.
  std::vector<std::string> ignored_columns = {};  ///< Of such a table: its columns that are no inputs.
  std::vector<std::string> na_values = {};        ///< Of such a table: what else counted as a gap in it.
  std::vector<InputInfo> inputs;                  ///< Of samples with several inputs, [F] in all; else empty.
  std::vector<std::string> sites;  ///< Names of the owners of rows, numbered as in /sites; else empty.
  std::uint64_t seed = 1;          ///< Of the split into train, validation and test.
  std::map<std::string, SplitInfo> splits;  ///< train, validation, test.
  std::vector<SourceInfo> sources;

  /// Numbers in the target of a sample.
  std::int64_t target_count() const {
    return targets.empty() ? 1 : static_cast<std::int64_t>(targets.size());
  }
  /// What a sample's target is in a shard: [] of one, [K] of several numbers, [H, W] of a class per place.
  std::vector<std::int64_t> stored_target() const {
    if (!target_shape.empty()) return target_shape;
    return targets.empty() ? std::vector<std::int64_t>() : std::vector<std::int64_t>{target_count()};
  }
  /// Samples of a split; 0 when there is none of that name.
  std::int64_t samples(const std::string& split) const;
};

/// Reads and checks FOLDER/dataset.json. Throws data_error (exit code 3) naming the file and the field.
DatasetInfo read_dataset_info(const std::filesystem::path& folder);

/// What dataset.json will hold. Throws data_error where it would be larger than read_dataset_info() takes.
std::string dataset_info_text(const DatasetInfo& info);

/// Writes FOLDER/dataset.json by a rename, so that it is whole or absent. Throws data_error.
void write_dataset_info(const std::filesystem::path& folder, const DatasetInfo& info);

/// A dataset that can be trained on: staged files, or arrays in memory. Copies share the open files.
class Dataset {
 public:
  /// Opens a staged dataset. Reads dataset.json only; shards are opened by source(), under the lock of
  /// `library`, which must outlive the dataset. Throws data_error when the folder or its dataset.json is
  /// missing or wrong.
  static Dataset open(const std::filesystem::path& folder, h5::Library& library);

  /// A dataset whose splits are already there, e.g. synthetic ones.
  Dataset(DatasetInfo info, std::map<std::string, std::shared_ptr<const SampleSource>> sources);

  const DatasetInfo& info() const { return info_; }
  /// Where the files lie; empty for a dataset in memory.
  const std::filesystem::path& folder() const { return folder_; }
  bool has_split(const std::string& split) const { return info_.samples(split) > 0; }

  /// The samples of a split, opened on first use and shared from then on (not thread-safe; what it returns
  /// is). Not collective unless options.staging is memory. Throws data_error.
  std::shared_ptr<const SampleSource> source(const std::string& split, const ReadOptions& options = {}) const;

  /// The owner of each row of a split, as a number of info().sites; empty where rows have none. Not
  /// collective. Throws data_error.
  std::vector<std::int32_t> sites(const std::string& split) const;

 private:
  Dataset() = default;
  DatasetInfo info_;
  std::filesystem::path folder_;
  h5::Library* library_ = nullptr;  // null for a dataset in memory
  std::shared_ptr<std::map<std::string, std::shared_ptr<const SampleSource>>> sources_;
};

/// Those for which data/ has a recipe.
inline constexpr std::array<std::string_view, 10> kPublicDatasets = {"ag-news",
                                                                     "cifar10",
                                                                     "fashion-mnist",
                                                                     "heart-disease",
                                                                     "heart-disease-flamby",
                                                                     "heart-disease-flamby-pooled",
                                                                     "imdb",
                                                                     "mnist",
                                                                     "multi30k",
                                                                     "tinyshakespeare"};

/// `--dataset` as the user gave it: a folder, or a name below `data_root`. Throws data_error that lists the
/// datasets there are, or for a public one says how to get it.
std::filesystem::path find_dataset(const std::string& name_or_folder, const std::filesystem::path& data_root);

}  // namespace dtrain::data
