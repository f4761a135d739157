#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::data {

inline constexpr std::size_t kLongestName = 200;  ///< Of a dataset; with its ending it is a file's name.

/// Whether a dataset may have this name: a folder's, without a slash, a dot in front or control characters.
bool is_plain_name(std::string_view name);

/// Whether staging gives its files such a name: dataset.json, SPLIT-00000-of-00001.h5, or these while they
/// are being written.
bool is_staged_file(std::string_view name);

/// Names of what lies in a folder and was not written by staging, by name; empty where there is no folder.
std::vector<std::string> others_in(const std::filesystem::path& folder);

/// Throws data_error (exit code 3) unless what lies at `folder` is a staged dataset, what a killed staging
/// has left, or nothing: anything else is not ours to replace.
void require_replaceable(const std::filesystem::path& folder);

/// Removes the files that staging has written, and the folder where nothing else is in it; of a link the link
/// alone. Throws std::filesystem::filesystem_error.
void remove_staged(const std::filesystem::path& folder);

}  // namespace dtrain::data
