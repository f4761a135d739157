#pragma once

#include <hdf5.h>

#include <cstdint>
#include <optional>
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

/// Bytes that copies of the rank files of `folder` take at most; nothing where they are to be linked: above 1
/// GiB in all.
std::optional<std::uint64_t> bytes_of_rank_copies(const std::string& folder);

/// How rank files come into results.h5, as /ranks/NNNNN.
enum class RankGroups { copies, links };

/// Puts the rank files of `folder` into the open results file `results`, in place of links. Each copy is one
/// burst under the library's lock, which the caller does not hold. Files that cannot be read are left out and
/// named in the attribute `unreadable_ranks`, after the first 8,000 bytes only counted.
void gather_rank_files(h5::Library& library, const std::string& folder, hid_t results, RankGroups how);

/// Links the live file of `rank` as /ranks/NNNNN. The caller holds the lock.
void link_rank_file(hid_t results, int rank);

}  // namespace dtrain::record
