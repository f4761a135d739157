#include "parallel/strategy/federated/client_states.hpp"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/file_descriptor.hpp"
#include "core/parse_number.hpp"

namespace dtrain::parallel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "round-";

struct StateFile {
  std::int64_t round = 0;
  fs::path path;
};

/// The states in a client's folder, in no order; files that are being written are none. Throws Error where
/// there is a folder that cannot be read: a client without a state would begin anew.
std::vector<StateFile> states_in(const fs::path& folder) {
  std::vector<StateFile> found;
  std::error_code error;
  for (fs::directory_iterator next(folder, error), end; !error && next != end; next.increment(error)) {
    const auto name = next->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const auto round = parse_number<std::int64_t>(name.substr(kPrefix.size()));
    if (round) found.push_back({*round, next->path()});
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw checkpoint_error("cannot be read (" + error.message() + ")", folder.string(),
                           "check the file system, and run the same command again");
  return found;
}

/// Until the disk has it: the checkpoint of the round, which needs it, is synced as well.
bool sync(const fs::path& path) {
  const FileDescriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return opened.is_open() && (::fsync(opened.get()) == 0 || errno == EINVAL);
}

std::streamsize bytes_of(const at::Tensor& values) { return static_cast<std::streamsize>(values.nbytes()); }

}  // namespace

ClientStates::ClientStates(fs::path folder) : folder_(std::move(folder)) {
  require(!folder_.empty(), "has no folder for what clients keep",
          {.subject = "--strategy fedavg", .advice = "report this as a bug"});
}

fs::path ClientStates::folder_of(int client) const { return folder_ / fmt::format("{:05}", client); }

void ClientStates::begin_round(const StrategyParts& parts, std::int64_t round) {
  kept_ = parts.kept_steps ? parts.kept_steps() : std::vector<std::int64_t>();
  if (std::exchange(begun_, true)) return;
  if (parts.data.rank() == 0) {
    std::error_code error;
    fs::create_directories(folder_, error);
    require(!error, "cannot be made (" + error.message() + ")",
            {.subject = folder_.string(), .advice = "check the permissions of its folder"});
    forget_from(round);
  }
  parts.data.barrier().wait();
}

void ClientStates::load(int client, std::int64_t round, at::Tensor& values) const {
  std::optional<StateFile> newest;
  for (auto& file : states_in(folder_of(client))) {
    if (file.round < round && (!newest || file.round > newest->round)) newest = std::move(file);
  }
  values.zero_();
  if (!newest) return;
  std::ifstream file(newest->path, std::ios::binary);
  file.read(static_cast<char*>(values.mutable_data_ptr()), bytes_of(values));
  const bool whole = file.gcount() == bytes_of(values) && file.peek() == std::ifstream::traits_type::eof();
  if (!whole) {
    throw checkpoint_error(
        "is not the whole state of a client", newest->path.parent_path().string(),
        "go on from an older checkpoint with --resume PATH under another name, or begin the "
        "run anew with --overwrite");
  }
}

void ClientStates::store(int client, std::int64_t round, const at::Tensor& values,
                         const std::vector<std::int64_t>& kept) const {
  const auto folder = folder_of(client);
  std::error_code error;
  const bool is_new = fs::create_directories(folder, error);
  const auto path = folder / fmt::format("{}{:08}", kPrefix, round);
  const auto aside = folder / fmt::format("partial-{}", ::getpid());
  {
    std::ofstream file(aside, std::ios::binary | std::ios::trunc);
    file.write(static_cast<const char*>(values.const_data_ptr()), bytes_of(values));
    file.close();
    const bool written = !file.fail() && sync(aside);
    if (written) fs::rename(aside, path, error);
    if (!written || error || !sync(folder) || (is_new && !sync(folder_))) {
      fs::remove(aside, error);
      throw checkpoint_error("does not take the states of clients", folder_.string(), "free space");
    }
  }
  const auto all = states_in(folder);
  std::set<std::int64_t> needed;  // for each kept round the newest up to it
  for (const auto after : kept) {
    std::int64_t newest = 0;
    for (const auto& state : all) {
      if (state.round <= after) newest = std::max(newest, state.round);
    }
    needed.insert(newest);
  }
  for (const auto& state : all) {
    const bool may_be_saved = kept.empty() || state.round > kept.back();
    if (!may_be_saved && !needed.contains(state.round)) fs::remove(state.path, error);
  }
}

void copy_client_states(const fs::path& from, const fs::path& to, std::int64_t round) {
  std::error_code error;
  require(fs::is_directory(from, error), "is not there, and has what the clients of that run keep",
          {.subject = from.string(),
           .advice = "name the checkpoint in the folder of its run",
           .code = ExitCode::checkpoint});
  for (fs::directory_iterator client(from, error), end; !error && client != end; client.increment(error)) {
    const StateFile* newest = nullptr;
    const auto states = states_in(client->path());
    for (const auto& state : states) {
      if (state.round <= round && (newest == nullptr || state.round > newest->round)) newest = &state;
    }
    if (newest == nullptr) continue;
    const auto folder = to / client->path().filename();
    fs::create_directories(folder, error);
    if (!error)
      fs::copy_file(newest->path, folder / newest->path.filename(), fs::copy_options::overwrite_existing,
                    error);
    if (error) break;
  }
  require(!error, "does not take the states of clients (" + error.message() + ")",
          {.subject = to.string(), .advice = "free space", .code = ExitCode::checkpoint});
}

void ClientStates::forget_from(std::int64_t round) const {
  std::error_code error;
  for (fs::directory_iterator next(folder_, error), end; !error && next != end; next.increment(error)) {
    std::error_code ignored;
    for (const auto& state : states_in(next->path())) {
      if (state.round >= round) fs::remove(state.path, ignored);
    }
  }
  if (error)
    throw checkpoint_error("cannot be read (" + error.message() + ")", folder_.string(),
                           "check the file system, and run the same command again");
}

}  // namespace dtrain::parallel
