#include "record/run_holder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/file_descriptor.hpp"
#include "core/own_place.hpp"
#include "record/process.hpp"
#include "record/run_folder.hpp"

namespace dtrain::record {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kRenewal{1};
constexpr std::chrono::seconds kSilenceElsewhere{60};  // of another host's process, whose run goes on
constexpr std::chrono::seconds kSilenceAtTheEnd{10};   // of one whose run has ended

std::string path_in(const std::string& folder) { return folder + "/" + kHolderFile; }

/// The first line of a file; nothing where there is none.
std::string line_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string own_line() {
  const std::int64_t pid = ::getpid();
  return fmt::format("{} {} {}", this_host(), pid, start_of_process(pid).value_or(0));
}

bool touched_within(const std::string& path, std::chrono::seconds limit) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written < limit;
}

/// `host HOST, process PID` of what the file at `path` names, where that is another process and lives.
std::string other_in(const std::string& path, const std::string& folder) {
  const std::string line = line_of(path);
  if (line == own_line()) return {};
  std::istringstream text(line);
  std::string host;
  std::int64_t pid = 0;
  std::int64_t start = 0;
  // Empty for a moment, while it is being made.
  if (!(text >> host >> pid >> start))
    return touched_within(path, kSilenceAtTheEnd) ? "a process that is starting" : "";
  const bool goes_on = read_state(folder) == Status::running;
  const bool lives = host == this_host()
                         ? start_of_process(pid) == start
                         : touched_within(path, goes_on ? kSilenceElsewhere : kSilenceAtTheEnd);
  return lives ? fmt::format("host {}, process {}", host, pid) : "";
}

[[noreturn]] void refuse(const std::string& folder, const std::string& holder) {
  throw usage_error(fmt::format("a run of this name is under way ({})", holder), folder,
                    "wait for its end, or take another --name");
}

[[noreturn]] void refuse_to_write(const std::string& path, const std::string& reason) {
  throw usage_error(fmt::format("cannot be written ({})", reason), path,
                    "name a folder you can write to with --output");
}

}  // namespace

std::string other_holder(const std::string& folder) { return other_in(path_in(folder), folder); }

RunHolder::RunHolder(std::string folder, Claim how) : folder_(std::move(folder)), text_(own_line()) {
  std::error_code error;
  // Before anything is read or written there: what a link of another user leads to may be this user's.
  for (const fs::path& path : {fs::path(folder_).parent_path(), fs::path(folder_)}) {
    require_own_folder(path, {.subject = path.string(),
                              .advice = "name a folder of your own with --output, or take another --name",
                              .code = ExitCode::usage});
  }
  if (fs::exists(folder_, error) && !fs::is_directory(folder_, error))
    refuse_to_write(folder_, "it is a file");
  fs::create_directories(folder_, error);
  if (error) refuse_to_write(folder_, error.message());
  claim(how);
  thread_ = std::thread([this] { renew(); });
}

void RunHolder::claim(Claim how) const {
  const std::string path = path_in(folder_);
  const std::string aside = fmt::format("{}.{}", path, ::getpid());
  constexpr int kAttempts = 10;  // each fails because another start has been faster
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (file.is_open()) {
      const std::string line = text_ + "\n";
      if (::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) return;
      const int reason = errno;
      ::unlink(path.c_str());
      refuse_to_write(path, std::strerror(reason));
    }
    if (errno != EEXIST) refuse_to_write(path, std::strerror(errno));
    const std::string holder = how == Claim::taken_over ? std::string() : other_in(path, folder_);
    if (!holder.empty()) refuse(folder_, holder);
    // It goes aside first: of two that find it silent one takes it, and the other looks again.
    if (std::rename(path.c_str(), aside.c_str()) != 0) continue;
    const std::string taken = how == Claim::taken_over ? std::string() : other_in(aside, folder_);
    if (!taken.empty()) {
      std::rename(aside.c_str(), path.c_str());
      refuse(folder_, taken);
    }
    ::unlink(aside.c_str());
  }
  refuse(folder_, "others start it at the same time");
}

RunHolder::~RunHolder() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (line_of(path_in(folder_)) == text_) ::unlink(path_in(folder_).c_str());
  ::rmdir(folder_.c_str());  // refused where anything is left in it
}

void RunHolder::renew() {
  std::unique_lock guard(mutex_);
  while (!wake_.wait_for(guard, kRenewal, [this] { return stopping_; })) {
    ::utimensat(AT_FDCWD, path_in(folder_).c_str(), nullptr, 0);
  }
}

}  // namespace dtrain::record
