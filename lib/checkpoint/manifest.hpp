#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/element_type.hpp"
#include "core/slice.hpp"

namespace dtrain::checkpoint {

/// Fingerprints of what each id of a dataset's text means; empty where there is no text, or they were not
/// kept.
struct VocabularyHashes {
  std::string all;     ///< Of both languages, where the samples are pairs.
  std::string source;  ///< Of pairs only, as is `target`.
  std::string target;
};

/// What one input of a table's rows was made of: (value - shift) / scale, a gap counting as `filled_with`.
struct InputColumn {
  std::string name = {};    ///< Of the original's column.
  std::string label = {};   ///< Of text: the input is 1 where the original has this label; empty for numbers.
  std::string other = {};   ///< Of two labels the one that is 0; empty: there are more, or it was not kept.
  std::string part = {};    ///< Of dates: what of them; empty for others.
  bool marks_gaps = false;  ///< The input is 1 where the original has no value.
  double filled_with = 0;
  double shift = 0;
  double scale = 1;
};

/// What a number of a regression was trained on as: (value - shift) / scale.
struct TargetScale {
  double shift = 0;
  double scale = 1;
  friend bool operator==(const TargetScale&, const TargetScale&) = default;
};

/// What the inputs that a model was trained on had been made with: it means nothing on others.
struct Transformations {
  std::vector<double> mean = {};  ///< Per channel of images, which are (x - mean) / std; empty for others.
  std::vector<double> std_dev = {};
  std::vector<InputColumn> columns = {};          ///< Of a table made from text; else empty.
  std::vector<std::string> ignored_columns = {};  ///< Of such a table: its columns that are no inputs.
  std::vector<std::string> na_values = {};        ///< Of such a table: what else counted as a gap in it.
  std::vector<TargetScale> targets = {};  ///< Of a regression; empty: the model says the values themselves.
};

/// One of several inputs, which lie one behind the other in a sample.
struct NamedInput {
  std::string name = {};
  std::vector<std::int64_t> shape = {};  ///< Of one sample.
  std::int64_t ids = 0;                  ///< Whole numbers below this one; 0: real numbers.
  bool bytes = false;                    ///< Images that were bytes, as values in [0, 1].
};

/// Which samples a run uses.
struct DatasetIdentity {
  std::map<std::string, std::int64_t> samples;  ///< Of each split.
  std::string sha256;                           ///< data::dataset_hash; empty: not kept.
  std::vector<std::string> classes = {};  ///< Their names; empty: there are none, or they were not kept.
  std::vector<std::string> targets = {};  ///< Names of several numbers of a regression; else empty.
  std::string task = {};                  ///< Of the dataset; empty: not kept.
  std::vector<std::int64_t> shape = {};   ///< Of one sample; kept with the task.
  std::vector<std::int64_t> target_shape = {};  ///< Of a class for each place, [H, W]; else empty.
  std::vector<NamedInput> inputs = {};          ///< Of samples with several; else empty.
};

/// What an epoch had come to when a checkpoint was taken, over all ranks: a run that goes on adds to it.
struct EpochProgress {
  /// Of federated training: what the epoch's only step has done.
  struct Round {
    std::int64_t sampled = 0;  ///< Clients.
    std::int64_t handed_in = 0;
    std::int64_t samples = 0;  ///< Of those that handed in.
    double update_norm = 0;
  };

  double loss = 0;     ///< Sum over the samples used.
  double weight = 0;   ///< Samples, target tokens or class weights in it.
  double correct = 0;  ///< Rightly classified,
  double counted = 0;  ///< out of these.
  double train_time_s = 0;
  std::uint64_t sample_hash = 0;  ///< Of the samples used: data::sample_hash.
  bool evaluated = false;         ///< Its validation is done: an epoch that is complete is not begun again.
  double samples = 0;             ///< Used; 0 as well where an older dtrain wrote it.
  double learning_rate = 0;       ///< Of its last step.
  std::vector<std::int64_t> staleness = {};  ///< How many gradients were 0, 1, ... updates old.
  std::optional<Round> round = {};
  double virtual_time_s = 0;  ///< What the virtual clocks showed at most; 0: there were none.
};

/// The best validation up to a checkpoint.
struct BestSoFar {
  std::int64_t step = 0;  ///< 0: there was none.
  double loss = 0;
  double accuracy = std::numeric_limits<double>::quiet_NaN();  ///< In [0, 1]; NaN: there was none.
};

/// What a run in fp16 multiplied its loss by.
struct LossScale {
  double scale = 0;             ///< 0: it did not.
  std::int64_t good_steps = 0;  ///< In a row, since it changed.
  /// Steps that made no update of the optimizer's state, since the run began; negative where that state comes
  /// from a run of more steps.
  std::int64_t left_out = 0;
};

/// Which all_reduce a run takes between nodes: on the same layout one that goes on takes the same, for the
/// same bits.
struct AllReduceTable {
  std::string layout;   ///< What it holds for; empty: for none.
  std::string by_size;  ///< `65536 tree, 8388608 ring`, up to so many bytes; empty: nothing was measured.
};

/// Where a run stood and what it was: enough to go on, or to refuse.
struct CheckpointInfo {
  std::int64_t step = 0;              ///< Steps done, with those that fp16 left out.
  std::int64_t epoch = 0;             ///< Counts from 1.
  std::int64_t position_samples = 0;  ///< Samples of that epoch already used, over all ranks.
  std::int64_t total_steps = 0;       ///< That the run was to do; its learning rates follow. 0: not known.
  EpochProgress so_far = {};          ///< Of that epoch.
  BestSoFar best = {};
  LossScale loss_scale = {};
  std::string model;
  std::string program = {};  ///< SHA-256 of what a model from a file computes; empty: dtrain's own.
  std::map<std::string, std::string> tied = {};  ///< Other names of a parameter in that model's state_dict.
  std::string dataset;
  std::uint64_t seed = 0;
  int micro_batches = 0;
  std::string config;  ///< The effective configuration as TOML.
  std::string dtrain_version;
  VocabularyHashes vocabulary;
  std::optional<Transformations> transformations = {};  ///< Nothing in checkpoints from before they kept it.
  DatasetIdentity identity = {};                        ///< Of the dataset.
  AllReduceTable all_reduce = {};
};

/// One file of a checkpoint as it was when it was whole.
struct FileEntry {
  std::string file;  ///< Relative to the checkpoint's folder.
  std::int64_t bytes = 0;
  std::string sha256;  ///< 64 hexadecimal digits.
};

/// Where a part of a tensor lies.
struct SliceEntry {
  std::string file;
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> shape;
  std::string dataset = {};  ///< Its path in the file; empty: the tensor's name.
};

/// A logical tensor of a checkpoint.
struct TensorEntry {
  std::string name;   ///< `model/NAME` or `optimizer/STATE/NAME`.
  std::string dtype;  ///< `float32`, `float64`, `int32`, `int64`, ...
  std::vector<std::int64_t> shape;
  std::vector<SliceEntry> slices;

  std::int64_t bytes() const;  ///< Of the whole tensor.
};

/// manifest.json: what a checkpoint consists of.
struct Manifest {
  CheckpointInfo info;
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;

  /// Null when there is none of that name.
  const TensorEntry* find(const std::string& name) const;
};

/// The type that a manifest calls `dtype`. Throws Error (exit code 4) for a type that checkpoints do not
/// have.
ElementType element_type_of(const std::string& dtype);

/// Bytes of one element. Throws Error (exit code 4) for a type that checkpoints do not have.
std::int64_t element_bytes(const std::string& dtype);

/// `step-00000500`.
std::string step_folder(std::int64_t step);

/// The manifest as the text of manifest.json, and back. parse_manifest throws Error (exit code 4) naming
/// `file`.
std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(const std::string& text, const std::string& file);

/// Writes manifest.json and then manifest.sha256 into `folder`, both synced. Throws Error (exit code 4), also
/// for what read_manifest() would refuse.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);

/// Checks manifest.sha256 first, then reads. Throws Error (exit code 4) naming the file at fault.
Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace dtrain::checkpoint
