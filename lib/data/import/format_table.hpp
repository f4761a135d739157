#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/import/archive.hpp"
#include "data/import/originals.hpp"
#include "data/import/stage.hpp"

namespace dtrain::data {

/// A format that can be staged. One row of formats() is all that the program knows of it.
struct Format {
  const char* name;         ///< As `--format` names it.
  const char* description;  ///< In the help of `--from`; empty where there is nothing to read.
  /// Formats are tried in ascending order, one that has neither test never. Formats of the same order are
  /// tried together on one file after another.
  int order = 0;
  /// Whether options.from as a whole has this format: a folder by its entries, a file by its first bytes.
  bool (*recognises)(const StageOptions& options) = nullptr;
  /// Whether one file has it, wherever that lies (in an archive, too), by its name and its first bytes.
  bool (*recognises_file)(const OriginalFile& start) = nullptr;
  /// Reads options.from. Null for a format without original files.
  Originals (*read)(const StageOptions& options, h5::Library& library) = nullptr;
  bool takes_table_options =
      false;                ///< --target, --ignore, --site and --standardize mean something, and --task.
  bool takes_task = false;  ///< Of the others: --task means something.
  bool takes_image_options = false;  ///< --image-size and --skip-broken mean something.
};

/// The formats in the order of the help.
std::span<const Format> formats();

/// Null for an unknown name.
const Format* find_format(const std::string& name);

std::vector<std::string> format_names();

/// Whether a dataset of this format is made from files of the user's. An empty name is a format to be
/// recognised.
bool has_originals(const std::string& name);

}  // namespace dtrain::data
