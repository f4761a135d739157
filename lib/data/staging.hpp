#pragma once

#include <filesystem>
#include <string>

#include "data/dataset.hpp"

namespace dtrain::data {

/// A dataset that is read from a node's own storage, or in place.
struct LocalCopy {
  Dataset dataset;
  std::string in_place;  ///< Why it is read in place after all, on the rank that tried; empty elsewhere.
};

/// `--staging local=DIR`: the dataset's files copied to DIR by the ranks of the node, several at a time, and
/// verified by SHA-256, or found there from an earlier run. Where DIR has no room nothing is left there and
/// the files are read in place. Collective over the team (a barrier); every rank of it throws usage_error
/// when there is no DIR, data_error when the copy failed.
LocalCopy copy_to_local(const Dataset& dataset, const std::filesystem::path& directory, const NodeTeam& team,
                        h5::Library& library);

}  // namespace dtrain::data
