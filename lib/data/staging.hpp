#pragma once

#include <filesystem>

#include "data/dataset.hpp"

namespace dtrain::data {

/// `--staging local=DIR`: the dataset's files copied to DIR by one rank of the node and verified by SHA-256,
/// or found there from an earlier run. Collective over the team (a barrier); every rank of it throws
/// data_error when the copy failed.
Dataset copy_to_local(const Dataset& dataset, const std::filesystem::path& directory, const NodeTeam& team,
                      h5::Library& library);

}  // namespace dtrain::data
