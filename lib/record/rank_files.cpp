#include "record/rank_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "h5/attribute.hpp"
#include "h5/file.hpp"
#include "record/run_folder.hpp"

namespace dtrain::record {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kCopyLimitBytes = std::uintmax_t{1} << 30;
constexpr std::size_t kMostOfUnreadable = 8000;  // bytes of text; an attribute holds 64 kB
constexpr std::uint64_t kGroupBytes = 16 << 10;  // what HDF5 needs to file a rank's group

std::uintmax_t total_bytes(const std::vector<RankFile>& files) {
  std::uintmax_t bytes = 0;
  for (const RankFile& file : files) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(file.path, error);
    if (!error) bytes += size;
  }
  return bytes;
}

// As many as an attribute should have; the rest is counted.
std::string listed(const std::vector<std::string>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto left = static_cast<std::int64_t>(ranks.size() - i);
    if (i > 0 && text.size() + ranks[i].size() > kMostOfUnreadable)
      return text + "; and " + counted(left, "other rank");
    text += (i > 0 ? "; " : "") + ranks[i];
  }
  return text;
}

void remove_group(hid_t results, int rank) {
  const std::string group = rank_group(rank);
  // A link to a file that is gone is no object, but it is in the way.
  if (h5::has_link(results, group)) h5::remove_link(results, group);
}

}  // namespace

std::vector<RankFile> rank_files(const std::string& folder) {
  constexpr std::string_view kPrefix = "rank-";
  std::vector<RankFile> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(folder) / "ranks", error)) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() != ".h5" || !stem.starts_with(kPrefix)) continue;
    const auto rank = parse_number<int>(std::string_view(stem).substr(kPrefix.size()));
    if (rank) files.push_back({*rank, entry.path().string()});
  }
  std::sort(files.begin(), files.end(), [](const RankFile& a, const RankFile& b) { return a.rank < b.rank; });
  return files;
}

void link_rank_file(hid_t results, int rank) {
  h5::link_external(results, rank_group(rank), fmt::format("ranks/rank-{:05}.h5", rank), "/");
}

std::optional<std::uint64_t> bytes_of_rank_copies(const std::string& folder) {
  const std::vector<RankFile> files = rank_files(folder);
  const auto bytes = total_bytes(files);
  return bytes <= kCopyLimitBytes ? std::optional(bytes + files.size() * kGroupBytes) : std::nullopt;
}

void gather_rank_files(h5::Library& library, const std::string& folder, hid_t results, RankGroups how) {
  const std::vector<RankFile> files = rank_files(folder);
  std::vector<std::string> unreadable;
  for (const RankFile& file : files) {
    const auto lock = library.lock();
    remove_group(results, file.rank);
    if (how == RankGroups::links) {
      link_rank_file(results, file.rank);
      continue;
    }
    try {
      const h5::File rank_file = h5::open_file(file.path, h5::Access::read);
      h5::copy_object(rank_file.id(), "/", results, rank_group(file.rank));
    } catch (const Error& error) {
      unreadable.push_back(fmt::format("rank {}: {}", file.rank, error.what()));
      remove_group(results, file.rank);
    }
  }
  if (unreadable.empty()) return;
  const auto lock = library.lock();
  h5::write_attribute(results, "unreadable_ranks", listed(unreadable));
}

}  // namespace dtrain::record
