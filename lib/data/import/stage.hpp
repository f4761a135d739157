#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/shards/dataset.hpp"
#include "data/synthetic/synthetic.hpp"
#include "data/text/text_options.hpp"

namespace dtrain::data {

/// `dtrain stage NAME --from PATH`.
struct StageOptions {
  std::string name;            ///< Becomes DATA_ROOT/NAME.
  std::filesystem::path from;  ///< A folder or a file; unused for synthetic sets.
  std::filesystem::path data_root = "data/staged";
  std::string format;        ///< One of formats(), by name; empty: recognised from content.
  std::string inputs;        ///< HDF5: path of the dataset; npy: file name. Relative to `from`.
  std::string targets;       ///< The same.
  std::string task;          ///< Of a table: table_classification or regression; empty: by its target.
  std::string target;        ///< Of a table: name or number (from 0) of the column; empty: the last one.
                             ///< `COL>VALUE` makes two classes of a column of numbers.
  std::string ignore;        ///< Of a table: columns that are no inputs, `NAME,NAME`.
  std::string site;          ///< Of a table: the column that names the owner of a row.
  bool standardize = false;  ///< Of a table: numbers become (x - mean) / std, both of train.
  int shards = 0;            ///< Files per split; 0: one per 512 MiB.
  std::uint64_t seed = 1;    ///< Of the split into train, validation and test, and of synthetic data.
  bool overwrite = false;    ///< Replace a dataset of that name.
  TextOptions text;          ///< How text becomes ids; unused for other data.

  /// Throws usage_error (exit code 2) for a bad name, shards < 1 and the like.
  void validate() const;
};

/// Called now and then with what is being done and how far that is, in [0, 1].
using StageProgress = std::function<void(std::string_view what, double fraction)>;

/// Reads the original files, splits them, and writes shards and dataset.json into DATA_ROOT/NAME.partial,
/// which becomes DATA_ROOT/NAME by a rename at the very end and is removed if anything fails. Returns what
/// dataset.json says. Throws data_error (exit code 3): missing, truncated or unknown files, counts that
/// differ, a full disk, a name that exists.
DatasetInfo stage(const StageOptions& options, h5::Library& library, const StageProgress& progress = {});

/// The same for a synthetic set, whose original is a formula.
DatasetInfo stage_synthetic(const StageOptions& options, const SyntheticSpec& spec, h5::Library& library,
                            const StageProgress& progress = {});

}  // namespace dtrain::data
