#include "data/import/archive.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <system_error>

#include "core/error.hpp"
#include "core/regular_file.hpp"
#include "data/import/archive_reader.hpp"

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

std::string read_plain(const fs::path& file, std::size_t most) {
  require_regular_file(file, ExitCode::data);
  std::ifstream stream(file, std::ios::binary);
  std::error_code code;
  const auto bytes = fs::file_size(file, code);
  std::string content(code ? 0 : std::min<std::size_t>(bytes, most), '\0');
  if (stream) stream.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (code || !stream || static_cast<std::size_t>(stream.gcount()) != content.size())
    throw data_error("cannot be read", file.string(), "check its rights and the disk");
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
  const Packing packing = packing_of(disk_file);
  if (packing == Packing::plain) {
    const std::string name = name_below(from, folder, disk_file.filename().string());
    if (wants && !wants(name)) return true;
    return visit(OriginalFile{name, disk_file.string(), read_plain(disk_file, most)});
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
  std::sort(files.begin(), files.end());
  return files;
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
