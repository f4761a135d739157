#include "run_folder.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <ctime>
#include <system_error>

#include "core/error.hpp"
#include "record/run_folder.hpp"

namespace dtrain::app {
namespace fs = std::filesystem;
namespace {

/// All that a run leaves behind; the state last, so that a removal that was interrupted shows what it was.
constexpr std::array<const char*, 7> kContents = {"results.h5",  "ranks",       "checkpoints", "trace.json",
                                                  "tensorboard", "config.toml", "state"};

constexpr const char* kOtherFolder = "name a folder you can write to with --output";

[[noreturn]] void refuse_to_write(const fs::path& path, const std::string& reason) {
  throw usage_error(fmt::format("cannot be written ({})", reason), path.string(), kOtherFolder);
}

void check_free(const fs::path& path) {
  const auto state = record::read_state(path.string());
  if (!state && (!fs::exists(path) || fs::is_empty(path))) return;
  const std::string advice = "take another --name, or add --overwrite to replace it";
  if (state == record::Status::completed)
    throw usage_error("a finished run has this name", path.string(), advice);
  if (!state) throw usage_error("the folder is not empty", path.string(), advice);
  throw usage_error(fmt::format("a run of this name is {}, and this version cannot go on with it",
                                record::status_name(*state)),
                    path.string(), advice);
}

}  // namespace

std::string default_name(const train::RunConfig& config, const Environment& environment) {
  fs::path dataset = config.data.dataset;
  if (!dataset.has_filename()) dataset = dataset.parent_path();
  const std::string job = environment.slurm_job_id
                              ? *environment.slurm_job_id
                              : fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(std::time(nullptr)));
  return fmt::format("{}-{}-{}", config.model.name, dataset.filename().string(), job);
}

void RunFolder::prepare(bool overwrite, const std::string& config_toml) const {
  try {
    if (fs::exists(path_) && !fs::is_directory(path_)) refuse_to_write(path_, "it is a file");
    if (!overwrite) check_free(path_);
    for (const char* entry : kContents) fs::remove_all(path_ / entry);
    fs::create_directories(path_);
  } catch (const fs::filesystem_error& error) {
    refuse_to_write(error.path1().empty() ? path_ : error.path1(), error.code().message());
  }
  try {
    record::create_run_folder(path_.string());
    record::write_state(path_.string(), record::Status::running);
    record::replace_file((path_ / "config.toml").string(), config_toml);
  } catch (const Error& error) {
    throw usage_error(error.problem(), error.subject().empty() ? path_.string() : error.subject(),
                      kOtherFolder);
  }
}

void RunFolder::mark_failed() const noexcept {
  try {
    if (fs::exists(path_ / "results.h5") || fs::exists(path_ / "checkpoints")) {
      return record::write_state(path_.string(), record::Status::failed);
    }
    for (const char* entry : kContents) fs::remove_all(path_ / entry);
    fs::remove(path_);
  } catch (const std::exception&) {
    // The error that brought us here is the one to be told.
  }
}

}  // namespace dtrain::app
