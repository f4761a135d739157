#pragma once

#include <filesystem>
#include <vector>

#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// The files on disk below `from`, archives unopened, each with its SHA-256: what dataset.json says a dataset
/// was made from. More than a thousand count as one, named like the folder: the SHA-256 of their list as
/// `sha256sum` prints it. Throws data_error.
std::vector<SourceInfo> source_list(const std::filesystem::path& from);

}  // namespace dtrain::data
