#include "data/shards/dataset_folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "core/regular_file.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

/// `00000-of-00001.h5`, in five digits or more each.
bool is_shard_of(std::string_view name, std::string_view split) {
  if (!name.starts_with(split)) return false;
  name.remove_prefix(split.size());
  const auto digits = [&name] {
    std::size_t count = 0;
    while (count < name.size() && std::isdigit(static_cast<unsigned char>(name[count])) != 0) ++count;
    name.remove_prefix(count);
    return count >= 5;
  };
  const auto word = [&name](std::string_view expected) {
    if (!name.starts_with(expected)) return false;
    name.remove_prefix(expected.size());
    return true;
  };
  return word("-") && digits() && word("-of-") && digits() && name == ".h5";
}

/// Whether dataset.json is ours, whole or damaged.
bool has_marker(const fs::path& folder) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  try {
    return read_regular_file(folder / "dataset.json", kMostBytes, ExitCode::data).find("dtrain.dataset") !=
           std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

/// A link in the place of a staged file is the dataset's as the file would be; what it leads to is not.
bool is_file_or_link(const fs::directory_entry& entry) {
  std::error_code ignored;
  const auto status = entry.symlink_status(ignored);
  return fs::is_regular_file(status) || fs::is_symlink(status);
}

}  // namespace

bool is_plain_name(std::string_view name) {
  const auto is_control = [](char letter) {
    return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F;
  };
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' &&
         name.find('/') == std::string_view::npos && std::ranges::none_of(name, is_control) && is_utf8(name);
}

bool is_staged_file(std::string_view name) {
  constexpr std::string_view kAside = ".partial";
  constexpr std::array<std::string_view, 3> kSplits = {"train", "validation", "test"};
  if (name.ends_with(kAside)) name.remove_suffix(kAside.size());
  return name == "dataset.json" ||
         std::ranges::any_of(kSplits, [name](auto split) { return is_shard_of(name, split); });
}

std::vector<std::string> others_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!is_file_or_link(entry) || !is_staged_file(name)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

void require_replaceable(const fs::path& folder) {
  constexpr std::size_t kNamed = 3;
  std::error_code ignored;
  const auto status = fs::symlink_status(folder, ignored);
  if (!fs::exists(status)) return;
  const char* kAdvice = "choose another name, or move what lies there";
  if (!fs::is_directory(status))
    throw data_error("is not a folder that dtrain wrote", folder.string(), kAdvice);
  auto others = others_in(folder);
  if (others.empty() || has_marker(folder)) return;
  for (std::string& name : others) name = printable(name, 60);
  const bool more = others.size() > kNamed;
  if (more) others.resize(kNamed);
  throw data_error(fmt::format("was not written by dtrain: it has no dataset.json of ours and holds {}{}",
                               fmt::join(others, ", "), more ? " and more" : ""),
                   folder.string(), kAdvice);
}

void remove_staged(const fs::path& folder) {
  const auto status = fs::symlink_status(folder);
  if (fs::is_symlink(status)) {
    fs::remove(folder);
    return;
  }
  if (!fs::is_directory(status)) return;
  std::vector<fs::path> ours;
  bool others = false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_file_or_link(entry) && is_staged_file(entry.path().filename().string())) {
      ours.push_back(entry.path());
    } else {
      others = true;
    }
  }
  for (const fs::path& file : ours) fs::remove(file);
  if (!others) fs::remove(folder);
}

}  // namespace dtrain::data
