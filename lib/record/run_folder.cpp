#include "record/run_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "core/error.hpp"
#include "core/file_descriptor.hpp"
#include "core/own_place.hpp"

namespace dtrain::record {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kStatusNames = {"running", "completed", "preempted", "failed",
                                                          "incomplete"};

std::string inside(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

}  // namespace

std::string_view status_name(Status status) { return kStatusNames[static_cast<std::size_t>(status)]; }

std::optional<Status> parse_status(std::string_view name) {
  for (std::size_t i = 0; i < kStatusNames.size(); ++i) {
    if (kStatusNames[i] == name) return static_cast<Status>(i);
  }
  return std::nullopt;
}

std::string results_path(const std::string& folder) { return inside(folder, "results.h5"); }
std::string state_path(const std::string& folder) { return inside(folder, "state"); }
std::string rank_path(const std::string& folder, int rank) {
  return inside(folder, fmt::format("ranks/rank-{:05}.h5", rank));
}
std::string trace_part_path(const std::string& folder, int rank) {
  return inside(folder, fmt::format("ranks/trace-{:05}.json", rank));
}
std::string trace_path(const std::string& folder) { return inside(folder, "trace.json"); }
std::string tensorboard_folder(const std::string& folder) { return inside(folder, "tensorboard"); }
std::string rank_group(int rank) { return fmt::format("/ranks/{:05}", rank); }

void create_run_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(fs::path(folder) / "ranks", error);
  if (!error && ::faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) != 0)
    error = std::error_code(errno, std::generic_category());
  if (error) {
    throw usage_error("the run folder cannot be written (" + error.message() + ")", folder,
                      "name another place with --output, or get write permission for this one");
  }
}

namespace {

/// Needs no further room: the line fits the block that the file has.
bool write_in_place(const std::string& path, std::string_view line) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.is_open()) return false;
  const auto bytes = static_cast<ssize_t>(line.size());
  const bool written =
      ::pwrite(file.get(), line.data(), line.size(), 0) == bytes && ::ftruncate(file.get(), bytes) == 0;
  return file.close() && written;
}

}  // namespace

void write_state(const std::string& folder, Status status) {
  const std::string path = state_path(folder);
  const std::string line = std::string(status_name(status)) + "\n";
  try {
    replace_file(path, line);
  } catch (const Error&) {
    if (!write_in_place(path, line)) throw;
  }
}

void sync_to_disk(const std::string& path) {
  const FileDescriptor opened(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!opened.is_open() && errno == EACCES) return;  // the system asks to read what it syncs
  if (opened.is_open() && (::fsync(opened.get()) == 0 || errno == EINVAL)) return;
  throw Error(std::string("cannot be synced to the disk (") + std::strerror(errno) + ")",
              {.subject = path, .advice = "check the disk and the permissions"});
}

std::optional<Status> read_state(const std::string& folder) {
  std::error_code error;
  if (!fs::is_regular_file(state_path(folder), error)) return std::nullopt;  // a FIFO would be waited for
  std::ifstream file(state_path(folder));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return parse_status(line);
}

namespace {

[[noreturn]] void fail_to_replace(const std::string& path, const std::string& aside) {
  const std::string reason = std::strerror(errno);
  std::remove(aside.c_str());
  throw Error("cannot be written (" + reason + ")",
              {.subject = path, .advice = "free space or check permissions"});
}

/// Returns the file that has the text.
std::string write_aside(const std::string& path, std::string_view text) {
  std::string aside = path + ".partial";
  claim_file(aside, ExitCode::failure);
  std::FILE* file = std::fopen(aside.c_str(), "wb");
  bool written = file != nullptr;
  if (file != nullptr) {
    written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    written = std::fclose(file) == 0 && written;
  }
  if (!written) fail_to_replace(path, aside);
  return aside;
}

}  // namespace

void replace_file(const std::string& path, std::string_view text) {
  const auto aside = write_aside(path, text);
  if (std::rename(aside.c_str(), path.c_str()) != 0) fail_to_replace(path, aside);
}

void replace_file_durably(const std::string& path, std::string_view text) {
  const auto aside = write_aside(path, text);
  sync_to_disk(aside);  // first: a name that is on the disk before its text would stand for an empty file
  if (std::rename(aside.c_str(), path.c_str()) != 0) fail_to_replace(path, aside);
  const auto folder = fs::path(path).parent_path();
  sync_to_disk(folder.empty() ? "." : folder.string());
}

}  // namespace dtrain::record
