#pragma once

#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// The files on disk below `from`, archives unopened, each with its SHA-256: what dataset.json says a dataset
/// was made from. More than a thousand count as one, named like the folder: the SHA-256 of their list as
/// `sha256sum` prints it. `known`: SHA-256 by path of files that were read already. Throws data_error.
std::vector<SourceInfo> source_list(const std::filesystem::path& from,
                                    const std::unordered_map<std::string, std::string>& known = {});

}  // namespace dtrain::data
