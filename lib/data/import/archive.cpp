#include "data/import/archive.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/regular_file.hpp"
#include "data/import/archive_reader.hpp"
#include "data/shards/file_column.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestFile = std::size_t{4} << 30;

using Wants = std::function<bool(const std::string&)>;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

/// The name of a file as if everything were unpacked below `from`.
std::string name_below(const fs::path& from, const fs::path& folder, const std::string& name) {
  const fs::path inside = folder.lexically_relative(from);
  return (inside.empty() || inside == "." ? fs::path(name) : inside / name).generic_string();
}

/// The first bytes, at most `most`.
std::string beginning_of(const ReadOnlyFile& file, std::uint64_t most) {
  std::string content(static_cast<std::size_t>(std::min(file.bytes(), most)), '\0');
  file.read(0, content.size(), content.data());
  return content;
}

void require_moderate(const OriginalFile& file) {
  if (file.content.size() > kLargestFile)
    throw data_error("is larger than 4 GiB", file.origin, "split it into several files");
}

/// Calls visit(file) for each file that `disk_file` is or holds, as stored; false ends it and is handed back.
template <typename Visit>
bool read_each(const fs::path& from, const fs::path& disk_file, std::size_t most, const Wants& wants,
               Visit&& visit) {
  const fs::path folder = disk_file.parent_path();
  const ReadOnlyFile stored(disk_file);
  const Packing packing = packing_of(disk_file, beginning_of(stored, kPackingBytes));
  if (packing == Packing::plain) {
    const std::string name = name_below(from, folder, disk_file.filename().string());
    if (wants && !wants(name)) return true;
    return visit(OriginalFile{name, disk_file.string(), beginning_of(stored, most), true});
  }
  ArchiveReader reader(disk_file, packing);
  while (reader.next()) {
    const std::string name = name_below(from, folder, reader.member());
    if (is_hidden(name) || (wants && !wants(name))) continue;
    const std::string member = packing == Packing::archive ? ":" + reader.member() : "";
    if (!visit(OriginalFile{name, disk_file.string() + member, reader.read(most)})) return false;
  }
  return true;
}

/// Where a member of an archive lies if the archive NAME.zip was unpacked into a folder NAME beside it.
fs::path unpacked_place(const fs::path& root, const fs::path& disk_file, const std::string& name) {
  const std::string base = disk_file.filename().string();
  const fs::path folder = disk_file.parent_path();
  return folder / base.substr(0, base.find('.', 1)) / (root / name).lexically_relative(folder);
}

/// By folder and name, as paths compare. Paths themselves compare part by part, ten times slower than text.
std::vector<fs::path> sorted(const std::vector<fs::path>& files) {
  std::vector<std::pair<std::string, std::size_t>> keys;
  for (const fs::path& file : files) {
    std::string key = file.native();
    std::ranges::replace(key, '/', '\0');  // before all letters: a/x comes before a-b/x
    keys.emplace_back(std::move(key), keys.size());
  }
  std::ranges::sort(keys);
  std::vector<fs::path> in_order;
  for (const auto& [key, place] : keys) in_order.push_back(files[place]);
  return in_order;
}

/// The folder that names are relative to.
fs::path root_of(const fs::path& from) {
  std::error_code ignored;
  return fs::is_directory(from, ignored) ? from : from.parent_path();
}

}  // namespace

std::vector<fs::path> files_on_disk(const fs::path& from) {
  std::error_code code;
  std::error_code ignored;
  std::vector<fs::path> files;
  if (fs::is_directory(from, code)) {
    auto entry = fs::recursive_directory_iterator(from, code);
    for (; !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
      if (is_hidden(entry->path())) {
        entry.disable_recursion_pending();
      } else if (entry->is_regular_file(ignored)) {
        files.push_back(entry->path());
      }
    }
    if (code) throw data_error("cannot be listed: " + code.message(), from.string(), "check its rights");
  } else if (fs::exists(from, code)) {
    require_regular_file(from, ExitCode::data);
    files.push_back(from);
  } else {
    throw data_error("there is no such file or folder", from.string(), "check the path");
  }
  if (files.empty()) throw data_error("holds no files", from.string(), "give a folder with files in it");
  return sorted(files);
}

void visit_files(const fs::path& from, const std::function<bool(OriginalFile&)>& visit, const Wants& wants) {
  const fs::path root = root_of(from);
  std::map<std::string, std::string> seen;  // origin of each name
  for (const fs::path& disk_file : files_on_disk(from)) {
    std::vector<OriginalFile> files;
    read_each(root, disk_file, kLargestFile + 1, wants, [&](OriginalFile&& file) {
      require_moderate(file);
      files.push_back(std::move(file));
      return true;
    });
    std::sort(files.begin(), files.end(),
              [](const OriginalFile& a, const OriginalFile& b) { return a.name < b.name; });
    for (OriginalFile& file : files) {
      const auto [first, is_new] = seen.emplace(file.name, file.origin);
      if (!is_new)
        throw data_error("is there twice, also as " + first->second, file.origin, "leave one of them");
      std::error_code ignored;
      const fs::path unpacked = unpacked_place(root, disk_file, file.name);
      if (disk_file != from && !file.as_stored && fs::exists(unpacked, ignored))
        throw data_error("is there twice, also as " + unpacked.string(), file.origin, "leave one of them");
      if (!visit(file)) return;
      file.content = {};
    }
  }
}

void glance_at_files(const fs::path& from, const std::function<bool(const OriginalFile&)>& visit) {
  const fs::path root = root_of(from);
  for (const fs::path& disk_file : files_on_disk(from))
    if (!read_each(root, disk_file, kGlanceBytes, {}, [&](OriginalFile&& file) { return visit(file); }))
      return;
}

}  // namespace dtrain::data
