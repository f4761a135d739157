#include "run/run_folder.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <optional>
#include <system_error>

#include "checkpoint/manifest.hpp"
#include "checkpoint/writer.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/printable.hpp"
#include "core/regular_file.hpp"
#include "core/wait_until.hpp"
#include "h5/library.hpp"
#include "options/toml_file.hpp"
#include "record/run_folder.hpp"
#include "record/run_holder.hpp"
#include "record/run_reader.hpp"
#include "run/run_contents.hpp"
#include "run/same_run.hpp"
#include "state/kept_program.hpp"

namespace dtrain::app {
namespace fs = std::filesystem;
namespace {

constexpr const char* kToken = ".seen";
constexpr const char* kConfig = "config.toml";

constexpr const char* kOtherFolder = "name a folder you can write to with --output";

[[noreturn]] void refuse_to_write(const fs::path& path, const std::string& reason) {
  throw usage_error(fmt::format("cannot be written ({})", reason), path.string(), kOtherFolder);
}

constexpr const char* kOtherName = "take another --name, or add --overwrite to replace it";
constexpr const char* kExtend =
    "train it further with more --epochs (a federated run: --rounds, or a limited one: --limit-steps), take "
    "another --name, or add --overwrite to replace it";

/// A process of this machine that still writes there.
bool is_alive(const fs::path& run) {
  try {
    h5::Library library;
    return record::read_run(library, run.string(), record::Detail::epochs).alive;
  } catch (const Error&) {
    return false;
  }
}

/// Whether nothing is there but the file of the process that holds it, this one.
bool is_free(const fs::path& path) {
  if (!fs::exists(path)) return true;
  return std::ranges::all_of(fs::directory_iterator(path), [](const auto& entry) {
    return entry.path().filename() == record::kHolderFile;
  });
}

/// Whether a finished run has more to do now.
bool can_be_extended(const fs::path& checkpoints, const train::RunConfig& config) {
  for (const auto& folder : checkpoint::list(checkpoints)) {
    try {
      return is_longer(config, checkpoint::read_manifest(folder).info, folder.string());
    } catch (const Error&) {  // it is damaged: the one before will be taken
    }
  }
  return false;
}

void check_free(const fs::path& path, bool may_be_unsaved) {
  const auto state = record::read_state(path.string());
  if (!state && is_free(path)) return;
  if (state == record::Status::completed)
    throw usage_error("a finished run has this name", path.string(), kExtend);
  if (!state) throw usage_error("the folder is not empty", path.string(), kOtherName);
  if (may_be_unsaved && !RunFolder(path).has_checkpoints()) return;
  throw usage_error(fmt::format("a run of this name is {}", record::status_name(*state)), path.string(),
                    "go on with it by --resume auto, take another --name, or add --overwrite to replace it");
}

}  // namespace

namespace {

/// What may be part of a folder's name: no control characters, not too long, no path.
std::string plain(std::string text) {
  constexpr std::size_t kMost = 60;
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F || letter == '/') letter = '_';
  }
  if (text.size() > kMost) text.resize(kMost);
  while (!text.empty() && !is_utf8(text)) text.pop_back();
  return text;
}

void check_is_folder(const fs::path& path) {
  if (fs::exists(path) && !fs::is_directory(path)) refuse_to_write(path, "it is a file");
}

/// Before what lies there is removed.
void check_is_runs(const fs::path& path) {
  if (const auto link = linked_folder_of_run(path); !link.empty()) {
    throw usage_error(
        "is a link, behind which --overwrite removes nothing: the new run's files would lie among the old "
        "one's",
        (path / link).string(), "remove the link, or take another --name");
  }
  if (is_run_folder(path) || !has_names_of_run(path)) return;
  throw usage_error("holds files with the names of a run's, but dtrain wrote no state beside them",
                    path.string(), "take another --name, or move them");
}

constexpr const char* kLedger = "privacy.ledger";

}  // namespace

std::string default_name(const train::RunConfig& config, const Environment& environment) {
  fs::path dataset = config.data.dataset;
  if (!dataset.has_filename()) dataset = dataset.parent_path();
  const std::string job = environment.slurm_job_id
                              ? *environment.slurm_job_id
                              : fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(std::time(nullptr)));
  return fmt::format("{}-{}-{}", plain(models::model_title(config.model.name)),
                     plain(dataset.filename().string()), job);
}

std::string make_own_folder(const fs::path& output, const std::string& name) {
  try {
    fs::create_directories(output);
    for (int number = 1;; ++number) {
      const std::string own = number == 1 ? name : fmt::format("{}-{}", name, number);
      if (fs::create_directory(output / own)) return own;
    }
  } catch (const fs::filesystem_error& error) {
    refuse_to_write(error.path1().empty() ? output : error.path1(), error.code().message());
  }
}

bool RunFolder::can_go_on(const train::RunConfig& config) const {
  const auto state = record::read_state(path_.string());
  if (!state && !has_checkpoints()) return false;  // prepare() says what is wrong, if anything is
  if (state == record::Status::completed && !can_be_extended(path_ / "checkpoints", config))
    check_free(path_, false);
  if (state == record::Status::running && is_alive(path_)) {
    throw usage_error("a run of this name is under way", path_.string(),
                      "wait for its end, or take another --name");
  }
  checkpoint::check_links(path_ / "checkpoints");  // or every checkpoint of the run would be without them
  return has_checkpoints();
}

bool RunFolder::has_checkpoints() const { return !checkpoint::list(path_ / "checkpoints").empty(); }

bool RunFolder::was_begun_from(const std::string& path) const {
  return record::read_state(path_.string()) && has_checkpoints() && begun_from() == path;
}

std::string RunFolder::begun_from() const {
  try {
    for (const FileEntry& entry : read_toml((path_ / kConfig).string())) {
      if (entry.key != "resume" || entry.values.size() != 1) continue;
      const std::string& named = entry.values.front();
      return named == "auto" || named == "none" ? std::string() : named;
    }
  } catch (const Error&) {  // it has been changed, or is not there
  }
  return {};
}

RunFolder::Earlier RunFolder::earlier() const {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  Earlier earlier{.state = record::read_state(path_.string()), .config_toml = {}};
  try {
    earlier.config_toml = read_regular_file(path_ / kConfig, kMost, ExitCode::usage);
  } catch (const Error&) {  // it is not there, or not dtrain's: then nothing is put back
  }
  return earlier;
}

void RunFolder::put_back(const Earlier& earlier) const noexcept {
  try {
    if (!earlier.config_toml.empty()) record::replace_file((path_ / kConfig).string(), earlier.config_toml);
  } catch (const std::exception&) {
    // The error that brought us here is the one to be told.
  }
  try {
    if (earlier.state) record::write_state(path_.string(), *earlier.state);
  } catch (const std::exception&) {
    // As above.
  }
}

bool RunFolder::is_of_run() const { return is_run_folder(path_); }

void RunFolder::check_replaceable() const {
  try {
    check_is_folder(path_);
    check_is_runs(path_);
    fs::create_directories(path_);
  } catch (const fs::filesystem_error& error) {
    refuse_to_write(error.path1().empty() ? path_ : error.path1(), error.code().message());
  }
}

std::vector<std::string> RunFolder::prepare(Contents contents, const std::string& config_toml) const {
  std::vector<std::string> left;
  try {
    check_is_folder(path_);
    if (contents == Contents::none || contents == Contents::unsaved) {
      check_free(path_, contents == Contents::unsaved);
    }
    // A run that begins again has released what its first attempt had. Its state stays, too, until it is
    // replaced: a kill in between must leave a folder in which the run can begin once more.
    if (contents == Contents::unsaved) remove_run(path_, {kLedger, "state"});
    if (contents == Contents::none || contents == Contents::replaced) remove_run(path_);
    if (contents == Contents::replaced) left = others_in_run(path_);
    fs::create_directories(path_);
  } catch (const fs::filesystem_error& error) {
    refuse_to_write(error.path1().empty() ? path_ : error.path1(), error.code().message());
  }
  try {
    record::create_run_folder(path_.string());
    record::write_state(path_.string(), record::Status::running);
    record::replace_file((path_ / kConfig).string(), config_toml);
  } catch (const Error& error) {
    throw usage_error(error.problem(), error.subject().empty() ? path_.string() : error.subject(),
                      kOtherFolder);
  }
  return left;
}

void RunFolder::leave_token(const std::string& token) const {
  record::replace_file((path_ / kToken).string(), token);
}

bool RunFolder::has_token(const std::string& token) const noexcept {
  constexpr double kPatience_s = 5.0;
  constexpr auto kPause = std::chrono::milliseconds(20);
  return wait_until(steady_s() + kPatience_s, kPause, [&] {
    std::string found;
    std::ifstream file(path_ / kToken);
    return std::getline(file, found) && found == token;
  });
}

void RunFolder::remove_token() const noexcept {
  std::error_code ignored;
  fs::remove(path_ / kToken, ignored);
}

void RunFolder::mark_failed() const noexcept {
  try {
    // A ledger of an attempt before this one says what has been released: no later attempt may begin from 0.
    const bool has_left = std::ranges::any_of(std::array{"results.h5", "checkpoints", kLedger},
                                              [&](const char* name) { return fs::exists(path_ / name); });
    if (has_left) return record::write_state(path_.string(), record::Status::failed);
    remove_run(path_);
    fs::remove(path_);
  } catch (const std::exception&) {
    // The error that brought us here is the one to be told.
  }
}

}  // namespace dtrain::app
