#include "run/run_contents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <system_error>

#include "core/error.hpp"
#include "core/own_place.hpp"
#include "core/regular_file.hpp"
#include "record/run_folder.hpp"
#include "record/run_holder.hpp"

namespace dtrain::app {
namespace fs = std::filesystem;
namespace {

/// What a path is of a run: a pattern for each of its parts, `*` standing for any letters but those between
/// two folders.
struct Place {
  std::string_view folder;  ///< Relative to the run's; `step` stands for each step's.
  std::string_view file;
};

constexpr std::array<Place, 23> kPlaces = {{{"", "results.h5"},
                                            {"", "results.h5.damaged*"},
                                            {"", "privacy.ledger"},
                                            {"", "privacy.ledger.partial"},
                                            {"", "trace.json"},
                                            {"", "config.toml"},
                                            {"", ".seen"},
                                            {"ranks", "rank-*.h5"},
                                            {"ranks", "rank-*.h5.damaged*"},
                                            {"ranks", "trace-*.json"},
                                            {"ranks", "flights-*.csv"},
                                            {"tensorboard", "events.out.tfevents.*"},
                                            {"program", "*.pt2"},
                                            {"program", "*.constants"},
                                            {"vocabulary", "dataset.json"},
                                            {"checkpoints", "best"},
                                            {"checkpoints", "last"},
                                            {"checkpoints/step-*", "manifest.json"},
                                            {"checkpoints/step-*", "manifest.sha256"},
                                            {"checkpoints/step-*", "part-*"},
                                            {"clients/*", "round-*"},
                                            {"clients/*", "partial-*"},
                                            {"", "state"}}};

bool matches(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  const std::string_view before = pattern.substr(0, star);
  const std::string_view behind = pattern.substr(star + 1);
  return name.size() >= before.size() + behind.size() && name.starts_with(before) && name.ends_with(behind);
}

/// Whether a run writes a file of this name there, or one beside it while it does.
bool is_file_of_run(const fs::path& relative) {
  std::string name = relative.filename().string();
  constexpr std::string_view kAside = ".partial";
  if (name.ends_with(kAside)) name.resize(name.size() - kAside.size());
  const std::string folder = relative.parent_path().generic_string();
  return std::ranges::any_of(kPlaces, [&](const Place& place) {
    const std::size_t star = place.folder.find('*');
    const bool there =
        star == std::string_view::npos ? folder == place.folder : matches(folder, place.folder);
    return there && matches(name, place.file);
  });
}

bool is_folder_of_run(const fs::path& relative) {
  const std::string folder = relative.generic_string();
  return folder == "ranks" || folder == "tensorboard" || folder == "program" || folder == "vocabulary" ||
         folder == "checkpoints" || folder == "clients" || relative.parent_path() == "clients" ||
         (relative.parent_path() == "checkpoints" && matches(folder, "checkpoints/step-*"));
}

/// Calls `visit` for each path below: the run's files and links, its folders behind what they hold, and what
/// is not the run's.
void walk(const fs::path& run, const fs::path& below,
          const std::function<void(const fs::path& relative, bool is_ours)>& visit) {
  std::error_code ignored;
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(run / below, ignored))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  for (const fs::path& name : names) {
    const fs::path relative = below.empty() ? name : below / name;
    const auto status = fs::symlink_status(run / relative, ignored);
    if (fs::is_directory(status) && is_folder_of_run(relative)) {
      walk(run, relative, visit);
      visit(relative, true);
    } else if (relative != fs::path(record::kHolderFile)) {
      const bool plain = fs::is_regular_file(status) || fs::is_symlink(status);
      visit(relative, plain && is_file_of_run(relative));
    }
  }
}

constexpr std::string_view kLeft = ".left";

/// A step's folder that others have put something into must not be taken for a checkpoint of the next run.
bool is_step(const fs::path& relative) {
  return relative.parent_path() == "checkpoints" &&
         relative.filename().string().find(kLeft) == std::string::npos;
}

}  // namespace

bool is_run_folder(const fs::path& folder) {
  std::error_code ignored;
  return record::read_state(folder.string()).has_value() || fs::exists(folder / "results.h5", ignored);
}

std::string linked_folder_of_run(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const fs::path name = entry.path().filename();
    if (entry.is_symlink(ignored) && is_folder_of_run(name)) return name;
  }
  return {};
}

std::vector<std::string> others_in_run(const fs::path& folder) {
  std::vector<std::string> names;
  walk(folder, {}, [&](const fs::path& relative, bool is_ours) {
    if (!is_ours) names.push_back(relative.generic_string());
  });
  return names;
}

void remove_run(const fs::path& folder, const std::set<std::string>& kept) {
  walk(folder, {}, [&](const fs::path& relative, bool is_ours) {
    if (!is_ours || relative == "state" || kept.contains(relative.generic_string())) return;
    const fs::path path = folder / relative;
    std::error_code ignored;
    if (!fs::is_directory(fs::symlink_status(path, ignored))) {
      fs::remove(path);
    } else if (fs::is_empty(path, ignored)) {
      fs::remove(path);
    } else if (is_step(relative)) {
      fs::rename(path, free_name(path.string() + std::string(kLeft)));
    }
  });
  if (!kept.contains("state")) fs::remove(folder / "state");
}

namespace {

/// Whether a dataset.json is that of a staged dataset.
bool is_of_dataset(const fs::path& file) {
  constexpr std::size_t kMost = std::size_t{64} << 20;
  try {
    return read_regular_file(file, kMost, ExitCode::usage).find("dtrain.dataset") != std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void require_not_kept(const std::string& option, const fs::path& path) {
  require_writable_place(path, ExitCode::usage);
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  const fs::path beside = whole.parent_path();
  const auto refuse_if = [&](bool kept, const char* of) {
    if (kept)
      throw usage_error(fmt::format("is a file of a {}", of), option + " " + path.string(),
                        "name another file");
  };
  const bool there = fs::exists(whole, ignored);
  refuse_if(there && fs::exists(beside / "manifest.json", ignored) &&
                fs::exists(beside / "manifest.sha256", ignored),
            "checkpoint");
  refuse_if(there && is_of_dataset(beside / "dataset.json"), "staged dataset");
  for (fs::path folder = beside; folder.has_relative_path(); folder = folder.parent_path()) {
    const bool is_run = record::read_state(folder.string()) || fs::exists(folder / "config.toml", ignored);
    refuse_if(is_run && is_run_folder(folder) && is_file_of_run(whole.lexically_relative(folder)), "run");
  }
}

bool has_names_of_run(const fs::path& folder) {
  bool found = false;
  walk(folder, {}, [&found](const fs::path&, bool is_ours) { found = found || is_ours; });
  return found;
}

}  // namespace dtrain::app
