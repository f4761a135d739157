#include "data/shards/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "core/error.hpp"
#include "core/outside.hpp"
#include "data/import/check_values.hpp"
#include "data/placement/shared_memory.hpp"
#include "data/sample_sources.hpp"
#include "data/shards/shard.hpp"

namespace dtrain::data {
namespace {

// Of an array of a shard: larger ones were looked through when they were staged.
constexpr std::size_t kMostBytesChecked = std::size_t{256} << 20;

using ShardColumns = std::vector<std::vector<std::shared_ptr<const Column>>>;

std::size_t bytes_of(const std::filesystem::path& folder, const SplitInfo& split) {
  std::size_t bytes = 0;
  std::error_code ignored;
  for (const ShardInfo& shard : split.shards) {
    const auto size = std::filesystem::file_size(folder / shard.file, ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

/// All arrays of all shards through one copy per node.
ShardColumns shared_copy(const ShardColumns& columns, const NodeTeam& team) {
  std::vector<std::shared_ptr<const Column>> flat;
  for (const auto& shard : columns) flat.insert(flat.end(), shard.begin(), shard.end());
  flat = in_node_memory(flat, team);
  ShardColumns copies;
  auto next = flat.begin();
  for (const auto& shard : columns) {
    copies.emplace_back(next, next + static_cast<std::ptrdiff_t>(shard.size()));
    next += static_cast<std::ptrdiff_t>(shard.size());
  }
  return copies;
}

}  // namespace

Dataset Dataset::open(const std::filesystem::path& folder, h5::Library& library) {
  Dataset dataset;
  dataset.info_ = read_dataset_info(folder);
  dataset.folder_ = folder;
  dataset.library_ = &library;
  dataset.sources_ = std::make_shared<std::map<std::string, std::shared_ptr<const SampleSource>>>();
  return dataset;
}

Dataset::Dataset(DatasetInfo info, std::map<std::string, std::shared_ptr<const SampleSource>> sources)
    : info_(std::move(info)),
      sources_(
          std::make_shared<std::map<std::string, std::shared_ptr<const SampleSource>>>(std::move(sources))) {}

std::shared_ptr<const SampleSource> Dataset::source(const std::string& split,
                                                    const ReadOptions& options) const {
  if (const auto found = sources_->find(split); found != sources_->end()) return found->second;
  const std::string subject = folder_.empty() ? info_.name : folder_.string();
  const auto described = info_.splits.find(split);
  if (library_ == nullptr || described == info_.splits.end())
    throw data_error("has no split '" + split + "'", subject,
                     "stage the dataset again or choose another split");
  const bool fits = bytes_of(folder_, described->second) <= options.cache_bytes;
  const bool shared = options.staging == ReadOptions::Staging::memory;
  const ColumnOptions how{.keep = fits && !shared ? FileColumn::Keep::memory : FileColumn::Keep::nothing,
                          .whole_bytes = options.whole_bytes};
  ShardColumns columns;
  std::int64_t first_sample = 0;
  for (const ShardInfo& shard : described->second.shards) {
    const std::filesystem::path file = folder_ / shard.file;
    understand_from_outside(
        {.subject = file.string(),
         .advice = "restore the file or stage the dataset again",
         .code = ExitCode::data},
        [&] {
          check_shard(file, {info_.name, split, first_sample, shard.samples}, *library_);
          columns.push_back(open_columns(file, arrays_of_task(info_.task), *library_, how));
          for (const auto& column : columns.back()) column->load();
          value_check(info_)(columns.back(), file.string(), first_sample, {.most_bytes = kMostBytesChecked});
        });
    first_sample += shard.samples;
  }
  if (shared) columns = shared_copy(columns, options.team);
  const auto source =
      make_source(info_.task, columns, info_.shape, subject + ", split " + split, info_.stored_target());
  if (source->samples() != described->second.samples)
    throw data_error("holds " + std::to_string(source->samples()) + " samples in split " + split +
                         " but dataset.json has " + std::to_string(described->second.samples),
                     subject, "stage the dataset again");
  sources_->emplace(split, source);
  return source;
}

std::vector<std::int32_t> Dataset::sites(const std::string& split) const {
  std::vector<std::int32_t> all;
  const auto described = info_.splits.find(split);
  if (library_ == nullptr || described == info_.splits.end() || info_.sites.empty()) return all;
  for (const ShardInfo& shard : described->second.shards) {
    const auto column =
        open_columns(folder_ / shard.file, {{"/sites", {ElementType::int32}}}, *library_, {}).front();
    const auto part = read_whole<std::int32_t>(*column);
    const auto odd = std::ranges::find_if_not(
        part, [&](std::int32_t site) { return site >= 0 && site < std::ssize(info_.sites); });
    if (odd != part.end())
      throw data_error(fmt::format("says that sample {} is of site {}, and there are {}", odd - part.begin(),
                                   *odd, info_.sites.size()),
                       (folder_ / shard.file).string(), "stage the dataset again");
    all.insert(all.end(), part.begin(), part.end());
  }
  if (static_cast<std::int64_t>(all.size()) != described->second.samples)
    throw data_error("has " + std::to_string(all.size()) + " sites for " +
                         std::to_string(described->second.samples) + " samples in split " + split,
                     folder_.string(), "stage the dataset again");
  return all;
}

std::filesystem::path find_dataset(const std::string& name_or_folder,
                                   const std::filesystem::path& data_root) {
  std::error_code ignored;
  const std::filesystem::path below_root = data_root / name_or_folder;
  if (std::filesystem::is_directory(below_root, ignored)) return below_root;
  if (std::filesystem::is_directory(name_or_folder, ignored)) return name_or_folder;
  const std::string where = std::filesystem::absolute(data_root, ignored).string();
  std::vector<std::string> there;
  for (const auto& entry : std::filesystem::directory_iterator(data_root, ignored))
    if (std::filesystem::exists(entry.path() / "dataset.json", ignored))
      there.push_back(entry.path().filename());
  std::sort(there.begin(), there.end());
  if (std::ranges::find(kPublicDatasets, name_or_folder) != kPublicDatasets.end())
    throw data_error("there is no such dataset in " + where + " yet", "--dataset " + name_or_folder,
                     "download and stage it with 'data/fetch.sh " + name_or_folder + "'");
  if (name_or_folder.find('/') != std::string::npos)
    throw data_error("there is no such folder, nor a dataset of that name in " + where,
                     "--dataset " + name_or_folder,
                     "correct the path, or stage data with 'dtrain stage NAME --from PATH' and give NAME");
  std::string list;
  for (const std::string& name : there) list += (list.empty() ? "" : ", ") + name;
  throw data_error("there is no such dataset in " + where, "--dataset " + name_or_folder,
                   list.empty() ? "stage it with 'dtrain stage " + name_or_folder +
                                      " --from PATH', or name the folder of staged datasets with --data-root"
                                : "stage it, or choose one of: " + list);
}

}  // namespace dtrain::data
