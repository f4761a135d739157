#include "data/placement/staging.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/file_descriptor.hpp"
#include "core/outside.hpp"
#include "core/regular_file.hpp"
#include "core/sha256.hpp"
#include "core/shared_failure.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

unsigned mode_like(int original) {
  struct stat facts {};
  const bool for_all = ::fstat(original, &facts) == 0 && (facts.st_mode & S_IROTH) != 0;
  return for_all ? 0644 : 0600;  // as many may read the copy as the original
}

[[noreturn]] void fail(const fs::path& file) {
  throw fs::filesystem_error("copy", file, std::error_code(errno, std::generic_category()));
}

void write_all(int descriptor, const char* data, std::size_t bytes, const fs::path& file) {
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(file);
    data += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

/// Copies a file under a new name and returns the SHA-256 of what was read.
std::string copy_new(const fs::path& from, const fs::path& to) {
  const FileDescriptor source = open_regular_file(from, ExitCode::data);
  const FileDescriptor target = create_new_file(to, mode_like(source.get()));
  Sha256 digest;
  std::vector<char> buffer(std::size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(source.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(from);
    if (got == 0) return digest.hexadecimal();
    digest.add(buffer.data(), static_cast<std::size_t>(got));
    write_all(target.get(), buffer.data(), static_cast<std::size_t>(got), to);
  }
}

/// Whether an earlier copy is whole and as it was.
bool is_copy(const fs::path& file, const std::string& sha256) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(file, ignored)) &&
         sha256_of_file(file, ExitCode::data) == sha256;
}

/// One shard, under another name until it is known to be whole; nothing where it is there already.
void copy_shard(const fs::path& from, const fs::path& to, const ShardInfo& shard) {
  const fs::path original = from / shard.file;
  const fs::path target = to / shard.file;
  const fs::path aside = target.string() + ".partial";
  const std::string expected = shard.sha256.empty() ? sha256_of_file(original, ExitCode::data) : shard.sha256;
  if (is_copy(target, expected)) return;
  fs::remove(target);  // the room that it takes is needed
  fs::remove(aside);
  if (copy_new(original, aside) != expected) {
    fs::remove(aside);
    throw data_error("does not have the SHA-256 that dataset.json gives", original.string(),
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

std::vector<ShardInfo> shards_of(const Dataset& dataset) {
  std::vector<ShardInfo> shards;
  for (const auto& [name, split] : dataset.info().splits)
    shards.insert(shards.end(), split.shards.begin(), split.shards.end());
  return shards;
}

std::uintmax_t bytes_of(const Dataset& dataset) {
  std::uintmax_t bytes = fs::file_size(dataset.folder() / "dataset.json");
  for (const ShardInfo& shard : shards_of(dataset)) bytes += fs::file_size(dataset.folder() / shard.file);
  return bytes;
}

std::uintmax_t bytes_in(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (fs::is_regular_file(entry.symlink_status(ignored))) bytes += fs::file_size(entry.path(), ignored);
  }
  return bytes;
}

bool is_lack_of_room(const std::error_code& code) {
  return code == std::errc::no_space_on_device || code == std::error_code(EDQUOT, std::generic_category());
}

/// Why a node has no copy: a failure, or only that there is no room for one.
struct Obstacle {
  std::optional<Error> failure;
  std::string no_room;

  bool none() const { return !failure && no_room.empty(); }
};

/// What `action` throws, as an obstacle of the copy.
template <typename Action>
Obstacle obstacle_of(const fs::path& copy, Action action) {
  try {
    action();
    return {};
  } catch (const fs::filesystem_error& error) {
    if (is_lack_of_room(error.code())) return {.failure = {}, .no_room = error.code().message()};
    return {.failure = data_error("the node-local copy failed: " + error.code().message(), copy.string(),
                                  "choose another folder, or use --staging none"),
            .no_room = {}};
  } catch (const std::exception& error) {
    return {.failure = error_from_outside(error, {.subject = copy.string(),
                                                  .advice = "choose another folder, or use --staging none",
                                                  .code = ExitCode::data}),
            .no_room = {}};
  }
}

/// One node's copy, made by all its ranks in a folder of the user's own. They share what hinders them, so
/// that all give up or none.
class NodeCopy {
 public:
  /// `name`: of the copy.
  NodeCopy(const Dataset& dataset, fs::path directory, std::string name, const NodeTeam& team)
      : dataset_(dataset), directory_(std::move(directory)), name_(std::move(name)), team_(team) {}

  /// Collective over the team. Throws data_error on all ranks alike; returns why there is no room, on rank 0.
  std::string make(const LockPatience& patience) {
    std::optional<OwnFolderLock> alone;
    Obstacle mine;
    if (leads()) {
      mine = obstacle_of(directory_, [&] { enter(alone, patience); });
      if (mine.none()) mine = prepare();
    }
    Obstacle met = of_all(mine);
    if (!leads()) find_folder();
    if (met.none() && !own_.empty()) mine = obstacle_of(copy_, [this] { copy_own_shards(); });
    if (met.none()) met = of_all(mine);
    if (leads() && !own_.empty()) mine = obstacle_of(copy_, [&] { finish(met); });
    met = of_all(met.none() ? mine : met);  // no rank looks at the copy before it is finished, or gone
    if (leads() && !own_.empty()) remove_team_file();
    if (alone) alone->remove_folder_if_empty();
    if (met.failure) throw Error(*met.failure);
    return leads() ? met.no_room : std::string();
  }

  bool has_all() const { return !copy_.empty() && complete(copy_, dataset_.folder()); }
  const fs::path& copy() const { return copy_; }

 private:
  static constexpr int kFilesInFlight = 8;  ///< Of a node: what a parallel file system needs to be busy.

  bool leads() const { return team_.local_rank == 0; }
  void use(const OwnFolder& folder) {
    own_ = folder.path();
    copy_ = own_ / name_;
  }

  std::string team_file() const { return "team-" + std::to_string(std::hash<std::string>{}(team_.token)); }

  /// Rank 0: the user's folder, which the other ranks know by a file in it.
  void enter(std::optional<OwnFolderLock>& alone, const LockPatience& patience) {
    constexpr int kAttempts = 100;  // each fails because another process has just removed its folder
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const OwnFolder folder = OwnFolder::find_or_make(directory_);
      alone.emplace(folder, patience);
      if (!alone->is_good()) continue;
      use(folder);
      remove_team_file();
      create_new_file(own_ / team_file(), 0600);
      return;
    }
    throw data_error("other processes keep removing what this one makes", directory_.string(), "start again");
  }

  void find_folder() {
    std::error_code ignored;
    try {
      if (const auto folder = OwnFolder::holding(directory_, team_file())) use(*folder);
    } catch (const fs::filesystem_error&) {  // rank 0 has met it too, and says it
    }
  }

  /// A folder, unless the dataset has no room. What would not fit is not begun: until it failed it would take
  /// the room from others on the node.
  Obstacle prepare() const {
    constexpr double kMiB = 0x1p20;
    Obstacle obstacle;
    const Obstacle thrown = obstacle_of(copy_, [&] {
      const bool is_folder = fs::is_directory(fs::symlink_status(copy_));
      if (!is_folder) fs::remove(copy_);
      const auto needed = bytes_of(dataset_);
      const auto there = is_folder ? bytes_in(copy_) : 0;
      const auto available = fs::space(own_).available;
      if (needed <= available + there) {
        fs::create_directory(copy_);
      } else {
        obstacle.no_room =
            fmt::format("{:.1f} MiB are free, the dataset takes {:.1f} MiB",
                        static_cast<double>(available) / kMiB, static_cast<double>(needed) / kMiB);
      }
    });
    return thrown.none() ? obstacle : thrown;
  }

  /// Each node begins at another shard, so that they do not all read the same file at once.
  void copy_own_shards() const {
    const std::vector<ShardInfo> shards = shards_of(dataset_);
    const std::size_t count = shards.size();
    const std::size_t first =
        count * static_cast<std::size_t>(team_.node) / static_cast<std::size_t>(team_.nodes);
    const int threads = std::max(1, kFilesInFlight / team_.local_size);
    const auto workers = static_cast<std::size_t>(threads * team_.local_size);
    std::vector<std::future<void>> copies;
    for (int thread = 0; thread < threads; ++thread) {
      const auto worker = static_cast<std::size_t>(team_.local_rank * threads + thread);
      if (worker >= count) break;
      copies.push_back(std::async(std::launch::async, [&, worker] {
        for (std::size_t i = worker; i < count; i += workers) {
          copy_shard(dataset_.folder(), copy_, shards[(first + i) % count]);
        }
      }));
    }
    for (auto& copy : copies) copy.wait();
    for (auto& copy : copies) copy.get();
  }

  /// dataset.json is copied last: a copy that has it was whole.
  void finish(const Obstacle& met) const {
    if (!met.none()) {
      std::error_code ignored;
      fs::remove_all(copy_, ignored);  // half a copy would keep the disk full
      return;
    }
    if (has_all()) return;
    const fs::path aside = copy_ / "dataset.json.partial";
    fs::remove(aside);
    copy_new(dataset_.folder() / "dataset.json", aside);
    fs::rename(aside, copy_ / "dataset.json");
  }

  /// The lowest rank's failure, or else that there is no room; the same on all ranks.
  Obstacle of_all(const Obstacle& mine) const {
    Obstacle met;
    for (const std::string& text : team_.share(mine.failure           ? failure_to_text(mine.failure)
                                               : mine.no_room.empty() ? ""
                                                                      : kNoRoom + mine.no_room)) {
      if (text.starts_with(kNoRoom)) {
        if (met.no_room.empty()) met.no_room = text.substr(kNoRoom.size());
      } else if (!met.failure) {
        met.failure = failure_from_text(text);
      }
    }
    return met;
  }

  void remove_team_file() const {
    std::error_code ignored;
    fs::remove(own_ / team_file(), ignored);
  }

  inline static const std::string kNoRoom = "no room: ";
  const Dataset& dataset_;
  fs::path directory_;
  std::string name_;
  fs::path own_;   ///< Of the user; empty: it could not be made.
  fs::path copy_;  ///< In it.
  const NodeTeam& team_;
};

}  // namespace

LocalCopy copy_to_local(const Dataset& dataset, const fs::path& directory, const NodeTeam& team,
                        h5::Library& library, const LockPatience& patience) {
  if (dataset.folder().empty()) return {dataset, ""};  // already in memory
  std::error_code ignored;
  // Never made here: where a node's own storage is not mounted, or its name mistyped, the copy would land on
  // the root disk.
  if (!fs::is_directory(directory, ignored)) {
    throw usage_error("there is no such folder", fmt::format("--staging local={}", directory.string()),
                      "name a folder of each node's own storage, or make it there");
  }
  OwnFolder::require_safe(directory);
  // Two datasets of one name from two data roots get a folder each.
  const std::string version = sha256_of_file(dataset.folder() / "dataset.json", ExitCode::data).substr(0, 12);
  NodeCopy node_copy(dataset, directory, dataset.info().name + "-" + version, team);
  const std::string no_room = node_copy.make(patience);
  if (node_copy.has_all()) return {Dataset::open(node_copy.copy(), library), ""};
  return {dataset, no_room.empty() ? "" : fmt::format("--staging local={}: {}", directory.string(), no_room)};
}

}  // namespace dtrain::data
