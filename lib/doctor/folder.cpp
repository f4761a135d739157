#include "doctor/folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

#include "core/clock.hpp"
#include "core/file_descriptor.hpp"
#include "core/wait_until.hpp"
#include "doctor/bounded.hpp"
#include "doctor/memory.hpp"

namespace dtrain::doctor {
namespace fs = std::filesystem;
namespace {

constexpr const char* kOutput = "output";
constexpr const char* kFile = "state";
constexpr std::size_t kTrialBytes = std::size_t{1} << 20;
constexpr auto kPause = std::chrono::milliseconds(5);
constexpr double kPatience_s = 10.0;  // NFS may show a file of another node after some seconds

// A checkpoint waits for the disk two times, its files' and its folder's; where that takes a second, saving
// every minute costs some percent.
constexpr double kSlowSync_s = 1.0;
// Nothing can be kept in less than this: a checkpoint of the smallest model takes 3 MB, its records some
// more.
constexpr std::int64_t kLeastFree_bytes = std::int64_t{64} << 20;
// Three checkpoints of vgg11 with their optimizer's state (226 MB each) and a fourth while it is written.
constexpr std::int64_t kLittleFree_bytes = std::int64_t{1} << 30;

/// The nearest folder that exists at or above `path`.
fs::path existing_part(fs::path path) {
  std::error_code ignored;
  path = fs::absolute(path, ignored);
  while (!fs::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path;
}

/// A new folder in `part`, or nothing and errno.
fs::path make_trial(const fs::path& part) {
  std::string trial = (part / ".dtrain-doctor-XXXXXX").string();
  return ::mkdtemp(trial.data()) == nullptr ? fs::path() : fs::path(trial);
}

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  return static_cast<bool>(file << text << std::flush);
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string version_text(int version) { return fmt::format("version {:02} whole", version); }

/// -1 for what is no whole version.
int version_in(const std::string& text) {
  for (int version = 0; version < SharedTrial::kVersions; ++version) {
    if (text == version_text(version)) return version;
  }
  return -1;
}

/// Each call in turn, until one fails.
class Trial {
 public:
  Trial(FolderFacts& facts, Step& step) : facts_(facts), step_(step) {}

  bool enter(const char* step) {
    step_ = step;
    return facts_.failed.empty();
  }
  void check(bool well) {
    if (well || !facts_.failed.empty()) return;
    facts_.failed = step_.load();
    facts_.reason = std::strerror(errno);
  }

 private:
  FolderFacts& facts_;
  Step& step_;
};

void try_file(const fs::path& folder, FolderFacts& facts, Step& step) {
  Trial trial(facts, step);
  const fs::path path = folder / kFile;
  const fs::path aside = folder / "aside";
  trial.enter("open");
  const FileDescriptor file(::open(path.c_str(), O_CREAT | O_RDWR, S_IRUSR | S_IWUSR));
  trial.check(file.is_open());
  if (trial.enter("write")) {
    const std::vector<char> data(kTrialBytes, 'x');
    std::size_t written = 0;
    for (ssize_t count = 1; count > 0 && written < data.size(); written += static_cast<std::size_t>(count))
      count = std::max<ssize_t>(0, ::write(file.get(), data.data() + written, data.size() - written));
    trial.check(written == data.size());  // a part is written while there is room for one
  }
  if (trial.enter("fsync")) {
    const double begun_s = steady_s();
    trial.check(::fsync(file.get()) == 0);
    facts.sync_s = steady_s() - begun_s;
  }
  if (trial.enter("fcntl (F_SETLK)")) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    if (::fcntl(file.get(), F_SETLK, &lock) != 0)
      facts.lock_error = fmt::format("fcntl: {}", std::strerror(errno));
  }
  if (trial.enter("flock") && facts.lock_error.empty() && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    facts.lock_error = fmt::format("flock: {}", std::strerror(errno));
  if (trial.enter("rename")) {
    trial.check(write_file(aside, "new"));
    if (facts.failed.empty()) trial.check(::rename(aside.c_str(), path.c_str()) == 0);
  }
  if (trial.enter("read") && read_file(path) != "new") {
    facts.failed = "rename";
    facts.reason = "the old file is still there";
  }
}

FolderFacts try_here(const fs::path& folder, Step& step) {
  FolderFacts facts;
  step = "stat";
  const fs::path part = existing_part(folder);
  facts.part = part.string();
  step = "mkdir";
  const fs::path own = make_trial(part);
  if (own.empty()) {
    facts.failed = "mkdir";
    facts.reason = std::strerror(errno);
    return facts;
  }
  try_file(own, facts, step);
  step = "statvfs";
  struct statvfs space = {};
  if (::statvfs(own.c_str(), &space) == 0)
    facts.free_bytes = static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize);
  step = "unlink";
  std::error_code ignored;
  fs::remove_all(own, ignored);
  return facts;
}

SeenFacts look_here(const fs::path& trial, int node, Step& step) {
  SeenFacts facts;
  const double begun_s = steady_s();
  bool seen_one = false;
  step = "read";
  facts.seen = wait_until(begun_s + kPatience_s, std::chrono::milliseconds(1), [&] {
    const int version = version_in(read_file(trial / kFile));
    facts.broken = facts.broken || (version < 0 && seen_one);
    seen_one = seen_one || version >= 0;
    return version == SharedTrial::kVersions - 1;
  });
  facts.after_s = steady_s() - begun_s;
  step = "write";
  write_file(trial / fmt::format("node-{}", node), "here");
  return facts;
}

}  // namespace

FolderFacts try_folder(const fs::path& folder, double limit_s) {
  const char* stuck_in = nullptr;
  const auto facts = within<FolderFacts>(
      limit_s, [folder](Step& step) { return try_here(folder, step); }, stuck_in);
  if (facts) return *facts;
  return {.part = folder.string(), .stuck_in = stuck_in};
}

std::vector<Finding> judge_folder(const FolderFacts& facts, const std::string& option) {
  if (!facts.stuck_in.empty()) {
    return {problem(
        kOutput, fmt::format("{} does not answer: {} hangs", facts.part, facts.stuck_in),
        fmt::format("ask the administrator about that file system, or name another folder with {}", option))};
  }
  if (facts.failed == "mkdir") {
    return {problem(kOutput, fmt::format("{} is not writable: {}", facts.part, facts.reason),
                    fmt::format("name another folder with {}", option))};
  }
  if (!facts.failed.empty()) {
    return {
        problem(kOutput, fmt::format("{}: {} fails: {}", facts.part, facts.failed, facts.reason),
                fmt::format("make room or repair that file system, or name another folder with {}", option))};
  }
  std::vector<Finding> findings;
  if (facts.free_bytes < kLeastFree_bytes) {
    findings.push_back(problem(
        kOutput,
        fmt::format("{}: {} are free", facts.part, bytes_in_words(static_cast<double>(facts.free_bytes))),
        fmt::format("make room, or name another folder with {}", option)));
  } else if (facts.free_bytes < kLittleFree_bytes) {
    findings.push_back(
        note(kOutput,
             fmt::format("{}: {} are free, few for checkpoints", facts.part,
                         bytes_in_words(static_cast<double>(facts.free_bytes))),
             fmt::format("make room, keep fewer with --keep, or use another folder ({})", option)));
  }
  if (facts.sync_s > kSlowSync_s) {
    findings.push_back(note(kOutput,
                            fmt::format("{}: {:.1f} s until 1 MiB is safe (fsync)", facts.part, facts.sync_s),
                            "save seldom (--checkpoint-every), or to a faster file system"));
  }
  if (!facts.lock_error.empty()) {
    findings.push_back(note(
        kOutput, fmt::format("{} has no file locks ({}); dtrain needs none", facts.part, facts.lock_error),
        "set HDF5_USE_FILE_LOCKING=FALSE for other programs that read results.h5 there"));
  }
  return findings;
}

Finding sum_up_folder(const std::string& folder, double longest_sync_s, std::int64_t least_free_bytes,
                      int nodes) {
  return good(kOutput,
              fmt::format("{}: writable{}, fsync {:.1f} ms, {} free", folder,
                          nodes > 1 ? fmt::format(" and the same on {} nodes", nodes) : "",
                          longest_sync_s * 1e3, bytes_in_words(static_cast<double>(least_free_bytes))));
}

SharedTrial::SharedTrial(const fs::path& folder) : path_(make_trial(existing_part(folder))) {
  if (!path_.empty()) write_file(path_ / kFile, version_text(0));
}

SharedTrial::~SharedTrial() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void SharedTrial::replace_versions() const {
  for (int version = 1; version < kVersions; ++version) {
    std::this_thread::sleep_for(kPause);
    write_file(path_ / "aside", version_text(version));
    ::rename((path_ / "aside").c_str(), (path_ / kFile).c_str());
  }
}

SeenFacts look_at_trial(const fs::path& trial, int node, double limit_s) {
  const char* stuck_in = nullptr;
  const auto facts = within<SeenFacts>(
      limit_s, [trial, node](Step& step) { return look_here(trial, node, step); }, stuck_in);
  if (facts) return *facts;
  return {.stuck_in = stuck_in};
}

std::vector<int> unseen_nodes(const fs::path& trial, int nodes, double limit_s) {
  const double end_s = steady_s() + limit_s;
  std::vector<int> unseen;
  for (int node = 1; node < nodes; ++node) {
    const fs::path file = trial / fmt::format("node-{}", node);
    const bool seen = wait_until(end_s, kPause, [&file] {
      std::error_code ignored;
      return fs::exists(file, ignored);
    });
    if (!seen) unseen.push_back(node);
  }
  return unseen;
}

Finding judge_unseen(const std::string& folder, const std::string& host) {
  return problem(kOutput, fmt::format("a file that {} writes in {} is not seen", host, folder),
                 "name a folder that all nodes share with --output, or mount it there");
}

std::vector<Finding> judge_seen(const SeenFacts& facts, const std::string& folder,
                                const std::string& first_host) {
  if (!facts.stuck_in.empty()) {
    return {problem(kOutput, fmt::format("{} does not answer: {} hangs", folder, facts.stuck_in),
                    "ask the administrator about that file system, or name another folder with --output")};
  }
  if (!facts.seen) return {judge_unseen(folder, first_host)};
  if (facts.broken) {
    return {problem(
        kOutput,
        fmt::format("a file that {} replaces in {} is missing or half for a moment", first_host, folder),
        "name a folder with --output where rename is atomic, on NFS mounted without nocto")};
  }
  if (facts.after_s > kSlowSync_s) {
    return {note(
        kOutput,
        fmt::format("a file that {} writes in {} is seen {:.1f} s later", first_host, folder, facts.after_s),
        "nothing needs that to be faster; on NFS the mount option actimeo sets it")};
  }
  return {};
}

}  // namespace dtrain::doctor
