#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace dtrain::data {

/// A file as it was before anybody packed it.
struct OriginalFile {
  std::string name;     ///< `train/pos/0_9.txt`: relative, as if all archives were unpacked where they lie.
  std::string origin;   ///< For messages: the file on disk and, in an archive, the member.
  std::string content;  ///< The visitor may take it.
  bool as_stored = false;  ///< The file on disk has these bytes: nothing was unpacked.
};

/// Visits every file below `from`, a folder or a single file, wherever it lies: plain, packed with gzip or xz
/// (the suffix leaves its name), or inside a tar (itself plain or packed) or zip. What is packed is known by
/// its first bytes; only a tar without a magic number by its name. Order: files of a folder by name, members
/// of an archive by theirs. Names that begin with a dot are left out.
/// `wants` (of the name; empty: all) says which are read; `visit` ends the walk with false. The wanted
/// members of one archive are in memory together, because an archive may hold them in any order.
/// Throws data_error: nothing there, a damaged or truncated archive, a member that climbs out of its folder
/// (`..`, an absolute path, a link), two files that would have one name, a file above 4 GiB.
void visit_files(const std::filesystem::path& from, const std::function<bool(OriginalFile&)>& visit,
                 const std::function<bool(const std::string& name)>& wants = {});

/// Bytes that glance_at_files reads of each file.
inline constexpr std::size_t kGlanceBytes = 4096;

/// The same files, each with its first bytes only and in whatever order comes cheapest, until `visit` returns
/// false: enough to recognise a format. Throws like visit_files; two files of one name pass.
void glance_at_files(const std::filesystem::path& from,
                     const std::function<bool(const OriginalFile&)>& visit);

/// The files on disk below `from` (itself, when it is one) by name, archives unopened; names that begin with
/// a dot are left out. Throws data_error when there is nothing.
std::vector<std::filesystem::path> files_on_disk(const std::filesystem::path& from);

}  // namespace dtrain::data
