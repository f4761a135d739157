#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/shards/column.hpp"

namespace dtrain::data {

/// Whether the file begins with NumPy's magic string.
bool is_npy(const std::filesystem::path& file);

/// The array of a .npy file (format versions 1 to 3, C order), as one of `accepted` types: read in place
/// where the file has one of them, otherwise converted to the first of them that holds any number, float32,
/// float64 or int64; fractions to float32 in place of int64. Source: NumPy's format specification
/// (numpy.lib.format). Throws data_error naming the file: not .npy, truncated, Fortran order, unknown type,
/// or none of `accepted` holds any number.
std::shared_ptr<const Column> open_npy(const std::filesystem::path& file,
                                       const std::vector<ElementType>& accepted);

/// The same of what such a file holds; `name` is its name.
std::shared_ptr<const Column> read_npy(std::string_view content, const std::string& name,
                                       const std::vector<ElementType>& accepted);

}  // namespace dtrain::data
