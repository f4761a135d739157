#pragma once

#include <string>
#include <vector>

namespace dtrain::app {

/// One `key = value` of a configuration file; an array gives several values.
struct FileEntry {
  std::string key;
  std::vector<std::string> values;  ///< As they would be written on the command line.
};

/// Reads a TOML file of keys at the top level. Throws Error (exit code 2) naming the file, and the line where
/// it is not TOML or the key that holds a table.
std::vector<FileEntry> read_toml(const std::string& file);

/// The same from text that came from `origin`.
std::vector<FileEntry> parse_toml(const std::string& text, const std::string& origin);

}  // namespace dtrain::app
