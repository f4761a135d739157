#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/image.hpp"
#include "data/import/split_plan.hpp"
#include "data/import/stage_report.hpp"
#include "data/shards/dataset.hpp"
#include "data/synthetic/synthetic.hpp"
#include "data/text/text_options.hpp"

namespace dtrain::data {

/// `dtrain stage NAME --from PATH`.
struct StageOptions {
  std::string name;            ///< Becomes DATA_ROOT/NAME.
  std::filesystem::path from;  ///< A folder or a file; unused for synthetic sets.
  std::filesystem::path data_root = "data/staged";
  std::string format;   ///< One of formats(), by name; empty: recognised from content.
  std::string inputs;   ///< HDF5: path of the dataset; npy: file name; npz: array. Relative to `from`.
  std::string targets;  ///< The same.
  std::string task;     ///< Of a table: table_classification or regression; empty: by its target.
  std::string target;   ///< Of a table: name or number (from 0) of the column; empty: the last one.
                        ///< `COL>VALUE` makes two classes of a column of numbers; `COL,COL` is a
                        ///< regression on several.
  std::filesystem::path
      validation;              ///< Of a table: a file of its own with the validation split; empty: none.
  std::filesystem::path test;  ///< The same for the test split.
  bool no_validation = false;  ///< All samples of train are trained on; not of running text.
  std::string na_values;     ///< Of a table: what counts as a gap beside `?`, `NA` and the like, `TEXT,TEXT`.
  ImageSize image_size;      ///< Of images: to what they are resized and cut; not given: as they are.
  bool skip_broken = false;  ///< Of images: leave out those that cannot be decoded.
  std::string ignore;        ///< Of a table: columns that are no inputs, `NAME,NAME`.
  std::string site;          ///< Of a table: the column that names the owner of a row.
  std::string standardize;   ///< Of a table, on or off: numbers, and the targets of regressions while they
                             ///< are trained on, become (x - mean) / std, both of train. Empty: on.
  int shards = 0;            ///< Files per split; 0: one per 512 MiB.
  std::uint64_t seed = 1;    ///< Of the split into train, validation and test, and of synthetic data.
  bool overwrite = false;    ///< Replace a dataset of that name.
  TextOptions text;          ///< How text becomes ids; unused for other data.

  SplitRule split_rule() const;

  /// Throws usage_error (exit code 2) for a bad name, shards < 1 and the like.
  void validate() const;
};

/// Called now and then with what is being done and how far that is, in [0, 1].
using StageProgress = std::function<void(std::string_view what, double fraction)>;

/// Reads the original files, splits them, and writes shards and dataset.json into DATA_ROOT/NAME.partial,
/// which becomes DATA_ROOT/NAME by a rename at the very end and is removed if anything fails. Returns what
/// dataset.json says, and where `report` is given fills that. Throws data_error (exit code 3): missing,
/// truncated or unknown files, counts that differ, a full disk, a name that exists.
DatasetInfo stage(const StageOptions& options, h5::Library& library, const StageProgress& progress = {},
                  StageReport* report = nullptr);

/// The same for a synthetic set, whose original is a formula.
DatasetInfo stage_synthetic(const StageOptions& options, const SyntheticSpec& spec, h5::Library& library,
                            const StageProgress& progress = {}, StageReport* report = nullptr);

}  // namespace dtrain::data
