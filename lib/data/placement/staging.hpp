#pragma once

#include <filesystem>
#include <string>

#include "data/placement/own_folder.hpp"
#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// A dataset that is read from a node's own storage, or in place.
struct LocalCopy {
  Dataset dataset;
  std::string in_place;  ///< Why it is read in place after all, on the rank that tried; empty elsewhere.
};

/// `--staging local=DIR`: the dataset's files copied by the ranks of the node, several at a time, into a
/// folder of the user's own in DIR, or found there from an earlier run; either way they are verified by
/// SHA-256. A copy is not readable by others where its original is not. Where DIR has no room nothing is left
/// there and the files are read in place. Waits with `patience` for another job of the user that copies on
/// this node. Collective over the team. Throws usage_error when there is no DIR or it is not safe, data_error
/// on all ranks of the node when the copy failed.
LocalCopy copy_to_local(const Dataset& dataset, const std::filesystem::path& directory, const NodeTeam& team,
                        h5::Library& library, const LockPatience& patience = {});

}  // namespace dtrain::data
