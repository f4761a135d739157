#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options/toml_file.hpp"
#include "task.hpp"
#include "train/config/config.hpp"

namespace dtrain::app {

/// What the words behind `dtrain train` ask for.
struct RunArguments {
  train::RunConfig config;  ///< Flag before file before the model's recipe before default.
  bool print_config = false;
  std::optional<std::string> help;  ///< Set when it was asked for; the rest then means nothing.
};

/// Applies keys of a file, or of a configuration that a checkpoint has kept. Throws Error (exit code 2)
/// naming `origin` and the key.
void apply_entries(const std::vector<FileEntry>& entries, const std::string& origin,
                   train::RunConfig& config);

/// Reads flags and the file that `--config` names. Throws Error (exit code 2).
RunArguments read_run_arguments(const Words& words);

}  // namespace dtrain::app
