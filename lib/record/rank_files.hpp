#pragma once

#include <hdf5.h>

#include <string>
#include <vector>

#include "h5/library.hpp"

namespace dtrain::record {

/// The live files in FOLDER/ranks, by rank.
struct RankFile {
  int rank = 0;
  std::string path;
};
std::vector<RankFile> rank_files(const std::string& folder);

/// Puts the rank files of `folder` into the open results file `results` as /ranks/NNNNN, in place of links:
/// copies while they have at most 1 GiB in all, links above. Each copy is one burst under the library's lock,
/// which the caller does not hold. Files that cannot be read are left out and named in the attribute
/// `unreadable_ranks`.
void gather_rank_files(h5::Library& library, const std::string& folder, hid_t results);

/// Links the live file of `rank` as /ranks/NNNNN. The caller holds the lock.
void link_rank_file(hid_t results, int rank);

}  // namespace dtrain::record
