#include "data/staging.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

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
  } catch (const Error& error) {
    return {.failure = error, .no_room = {}};
  }
}

/// One node's copy, made by all its ranks. They tell each other of obstacles by files beside it, which rank 0
/// takes away again.
class NodeCopy {
 public:
  NodeCopy(const Dataset& dataset, fs::path copy, const NodeTeam& team)
      : dataset_(dataset), copy_(std::move(copy)), team_(team) {}

  /// Collective over the team. Throws data_error on all ranks alike; returns why there is no room, on rank 0.
  std::string make() {
    std::optional<FolderLock> alone;
    if (leads()) {
      alone.emplace(copy_.parent_path());
      take_notices_away();
      tell(prepare());
    }
    wait_for_all();
    if (fs::exists(copy_) && !has_all() && told_by(0).none()) {
      tell(obstacle_of(copy_, [this] { copy_own_shards(); }));
      wait_for_all();
      if (leads()) tell(obstacle_of(copy_, [this] { finish(); }));
    } else {
      wait_for_all();
    }
    wait_for_all();
    const Obstacle obstacle = heard();
    wait_for_all();  // all have read it
    if (leads()) take_notices_away();
    if (obstacle.failure) throw Error(*obstacle.failure);
    return leads() ? obstacle.no_room : std::string();
  }

  bool has_all() const { return complete(copy_, dataset_.folder()); }

 private:
  static constexpr int kFilesInFlight = 8;  ///< Of a node: what a parallel file system needs to be busy.

  bool leads() const { return team_.local_rank == 0; }
  void wait_for_all() const {
    if (team_.barrier) team_.barrier();
  }

  /// An empty folder, unless the copy is whole already or has no room. What would not fit is not begun: until
  /// it failed it would take the room from others on the node.
  Obstacle prepare() const {
    constexpr double kMiB = 0x1p20;
    Obstacle obstacle;
    const Obstacle thrown = obstacle_of(copy_, [&] {
      if (has_all()) return;
      fs::remove_all(copy_);  // half a copy of a run that was killed
      const auto needed = bytes_of(dataset_);
      const auto available = fs::space(copy_.parent_path()).available;
      if (needed <= available) {
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

  /// dataset.json is copied last: a copy that has it is whole.
  void finish() const {
    if (!heard().none()) {
      std::error_code ignored;
      fs::remove_all(copy_, ignored);  // half a copy would keep the disk full
      return;
    }
    const fs::path aside = copy_ / "dataset.json.partial";
    fs::copy_file(dataset_.folder() / "dataset.json", aside);
    fs::rename(aside, copy_ / "dataset.json");
  }

  fs::path notice(int local_rank) const { return fmt::format("{}.failed-{}", copy_.string(), local_rank); }

  /// A rank's first obstacle stands.
  void tell(const Obstacle& obstacle) const {
    if (obstacle.none() || fs::exists(notice(team_.local_rank))) return;
    std::ofstream(notice(team_.local_rank))
        << (obstacle.failure ? error_to_text(*obstacle.failure) : kNoRoom + obstacle.no_room);
  }

  Obstacle told_by(int local_rank) const {
    std::ifstream stream(notice(local_rank));
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (text.starts_with(kNoRoom)) return {.failure = {}, .no_room = text.substr(kNoRoom.size())};
    return {.failure = error_from_text(text), .no_room = {}};
  }

  /// The lowest rank's failure, or else that there is no room.
  Obstacle heard() const {
    Obstacle heard;
    for (int rank = team_.local_size - 1; rank >= 0; --rank) {
      const Obstacle told = told_by(rank);
      if (told.failure) heard.failure = told.failure;
      if (!told.no_room.empty()) heard.no_room = told.no_room;
    }
    return heard;
  }

  void take_notices_away() const {
    std::error_code ignored;
    for (int rank = 0; rank < team_.local_size; ++rank) fs::remove(notice(rank), ignored);
  }

  inline static const std::string kNoRoom = "no room: ";
  const Dataset& dataset_;
  fs::path copy_;
  const NodeTeam& team_;
};

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
  NodeCopy node_copy(dataset, copy, team);
  const std::string no_room = node_copy.make();
  if (node_copy.has_all()) return {Dataset::open(copy, library), ""};
  return {dataset, no_room.empty() ? "" : fmt::format("--staging local={}: {}", directory.string(), no_room)};
}

}  // namespace dtrain::data
