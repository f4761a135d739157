#include "data/staging.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

#include "core/error.hpp"
#include "core/sha256.hpp"
#include "data/shared_error.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

/// One shard, under another name until it is known to be whole.
void copy_shard(const fs::path& from, const fs::path& to, const ShardInfo& shard) {
  const fs::path target = to / shard.file;
  const fs::path aside = target.string() + ".partial";
  fs::copy_file(from / shard.file, aside, fs::copy_options::overwrite_existing);
  if (!shard.sha256.empty() && sha256_of_file(aside, ExitCode::data) != shard.sha256) {
    fs::remove(aside);
    throw data_error("does not have the SHA-256 that dataset.json gives", (from / shard.file).string(),
                     "restore the file or stage the dataset again");
  }
  fs::rename(aside, target);
}

bool complete(const fs::path& copy, const fs::path& original) {
  std::error_code ignored;
  return fs::exists(copy / "dataset.json", ignored) &&
         sha256_of_file(copy / "dataset.json", ExitCode::data) ==
             sha256_of_file(original / "dataset.json", ExitCode::data);
}

std::uintmax_t bytes_of(const Dataset& dataset) {
  std::uintmax_t bytes = fs::file_size(dataset.folder() / "dataset.json");
  for (const auto& [name, split] : dataset.info().splits)
    for (const ShardInfo& shard : split.shards) bytes += fs::file_size(dataset.folder() / shard.file);
  return bytes;
}

/// dataset.json is copied last: a copy that has it is whole.
void copy_files(const Dataset& dataset, const fs::path& copy) {
  try {
    fs::create_directory(copy);
    for (const auto& [name, split] : dataset.info().splits)
      for (const ShardInfo& shard : split.shards) copy_shard(dataset.folder(), copy, shard);
    const fs::path aside = copy / "dataset.json.partial";
    fs::copy_file(dataset.folder() / "dataset.json", aside);
    fs::rename(aside, copy / "dataset.json");
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(copy, ignored);  // half a copy would keep the disk full
    throw;
  }
}

/// Keeps other jobs of this node out of a folder, from its construction to its end. Where the file system
/// knows no locks it keeps nobody out.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder) : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY)) {
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_EX);
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

bool is_lack_of_room(const std::error_code& code) {
  return code == std::errc::no_space_on_device || code == std::error_code(EDQUOT, std::generic_category());
}

/// Returns why there is no room for a copy; empty where it is made. What would not fit is not begun: until it
/// failed it would take the room from others on the node.
std::string copy_dataset(const Dataset& dataset, const fs::path& copy) {
  constexpr double kMiB = 0x1p20;
  try {
    const FolderLock alone(copy.parent_path());
    if (complete(copy, dataset.folder())) return "";
    fs::remove_all(copy);  // half a copy of a run that was killed
    const auto needed = bytes_of(dataset);
    const auto available = fs::space(copy.parent_path()).available;
    if (needed > available) {
      return fmt::format("{:.1f} MiB are free, the dataset takes {:.1f} MiB",
                         static_cast<double>(available) / kMiB, static_cast<double>(needed) / kMiB);
    }
    copy_files(dataset, copy);
    return "";
  } catch (const fs::filesystem_error& error) {
    if (is_lack_of_room(error.code())) return error.code().message();
    throw data_error("the node-local copy failed: " + error.code().message(), copy.string(),
                     "choose another folder, or use --staging none");
  }
}

/// The failure of the rank that copies, for the others of its node: a file beside the copy.
fs::path notice_beside(const fs::path& copy) { return copy.string() + ".failed"; }

std::optional<Error> read_notice(const fs::path& copy) {
  std::ifstream stream(notice_beside(copy));
  return error_from_text({std::istreambuf_iterator<char>(stream), {}});
}

}  // namespace

LocalCopy copy_to_local(const Dataset& dataset, const fs::path& directory, const NodeTeam& team,
                        h5::Library& library) {
  if (dataset.folder().empty()) return {dataset, ""};  // already in memory
  std::error_code ignored;
  // Never made here: where a node's own storage is not mounted, or its name mistyped, the copy would land on
  // the root disk.
  if (!fs::is_directory(directory, ignored)) {
    throw usage_error("there is no such folder", fmt::format("--staging local={}", directory.string()),
                      "name a folder of each node's own storage, or make it there");
  }
  // Two datasets of one name from two data roots get a folder each.
  const std::string version = sha256_of_file(dataset.folder() / "dataset.json", ExitCode::data).substr(0, 12);
  const fs::path copy = directory / (dataset.info().name + "-" + version);
  const auto wait_for_all = [&] {
    if (team.barrier) team.barrier();
  };
  std::optional<Error> failure;
  std::string no_room;
  if (team.local_rank == 0) {
    fs::remove(notice_beside(copy), ignored);  // of a run that was killed
    try {
      no_room = copy_dataset(dataset, copy);
    } catch (const Error& error) {
      failure = error;
      std::ofstream(notice_beside(copy)) << error_to_text(error);
    }
  }
  wait_for_all();
  if (!failure && complete(copy, dataset.folder())) return {Dataset::open(copy, library), ""};
  if (!failure) failure = read_notice(copy);
  wait_for_all();  // all have read it
  if (team.local_rank == 0) fs::remove(notice_beside(copy), ignored);
  if (failure) throw Error(*failure);
  return {dataset, no_room.empty() ? "" : fmt::format("--staging local={}: {}", directory.string(), no_room)};
}

}  // namespace dtrain::data
