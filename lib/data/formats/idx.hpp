#pragma once

#include <filesystem>

#include "data/import/originals.hpp"

namespace dtrain::data {

/// Whether the file, plain or gzipped, begins like IDX: two zeros, a known type, at least one dim.
bool is_idx(const std::filesystem::path& file);

/// One IDX file, plain or gzipped. uint8 stays; other types become int64 (rank 1) or float32.
/// Source: the format's description on the MNIST page (LeCun et al.). Throws data_error naming the file: not
/// IDX, truncated, longer than its header says, damaged gzip.
std::shared_ptr<const Column> read_idx(const std::filesystem::path& file);

/// Whether `from` is a folder with IDX files. A file that is named like one counts, so that a damaged one is
/// called damaged and not unknown. Throws data_error for a single IDX file: labels without images, or the
/// reverse.
bool is_idx_source(const std::filesystem::path& from);

/// The pairs of images and labels in a folder: files with `t10k` or `test` in their name are the test split,
/// others train. Throws data_error: no folder, no pair, one without the other, counts that differ.
Originals read_idx_folder(const std::filesystem::path& folder);

}  // namespace dtrain::data
