#include "data/import/stage.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "core/error.hpp"
#include "core/file_descriptor.hpp"
#include "core/outside.hpp"
#include "core/own_place.hpp"
#include "core/printable.hpp"
#include "core/sha256.hpp"
#include "core/slice.hpp"
#include "data/import/check_values.hpp"
#include "data/import/format_table.hpp"
#include "data/import/read_originals.hpp"
#include "data/import/selection.hpp"
#include "data/import/split_plan.hpp"
#include "data/import/statistics.hpp"
#include "data/sample_sources.hpp"
#include "data/shards/dataset_folder.hpp"
#include "data/shards/shard_writer.hpp"
#include "data/synthetic/synthetic_columns.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShardBytes = std::size_t{512} << 20;

Error disk_error(const std::string& subject, const std::error_code& code) {
  return data_error("staging failed: " + code.message(), subject,
                    "free some space or choose another --data-root");
}

/// A folder that no other process stages into, by a lock on it. Where the file system knows no locks it keeps
/// nothing out.
class FolderClaim {
 public:
  /// Throws usage_error where another process has it; nothing where there is no folder.
  explicit FolderClaim(const fs::path& folder)
      : file_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
    if (!file_.is_open()) return;
    const bool taken = ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (taken) refuse(folder);
  }

  /// Throws usage_error where `folder`, which this process has made, is another one by now, or none.
  void require_still_there(const fs::path& folder) const {
    struct stat held {
    }, found{};
    const bool same = file_.is_open() && ::fstat(file_.get(), &held) == 0 &&
                      ::lstat(folder.c_str(), &found) == 0 && held.st_dev == found.st_dev &&
                      held.st_ino == found.st_ino;
    if (!same) refuse(folder);
  }

 private:
  [[noreturn]] static void refuse(const fs::path& folder) {
    throw usage_error("another process stages a dataset of this name", folder.string(),
                      "wait for its end, or choose another name");
  }

  FileDescriptor file_;
};

/// DATA_ROOT/NAME.partial for as long as the dataset is not whole; removed unless it was committed. Of what
/// lay there only what staging wrote is removed.
class PartialFolder {
 public:
  PartialFolder(const fs::path& data_root, const std::string& name)
      : final_(data_root / name), partial_(data_root / (name + ".partial")) {
    std::error_code code;
    require_replaceable(partial_);
    {
      const FolderClaim former(partial_);
      remove_staged(partial_);  // of a run that was killed
    }
    fs::create_directories(data_root, code);
    const bool made = !code && fs::create_directory(partial_, code);
    if (!made)
      throw data_error(code ? "cannot be created: " + code.message() : "holds what dtrain did not write",
                       partial_.string(), "choose another --data-root, or move what lies there");
    claim_.emplace(partial_);
    claim_->require_still_there(partial_);
  }
  ~PartialFolder() {
    std::error_code ignored;
    if (!committed_) fs::remove_all(partial_, ignored);  // made by this process
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const fs::path& path() const { return partial_; }

  /// The dataset gets its name. What had that name is gone only when the new one is in place.
  void commit() {
    const fs::path replaced = final_.string() + ".replaced";
    require_replaceable(replaced);
    std::error_code code;
    remove_staged(replaced);
    if (fs::exists(fs::symlink_status(final_))) fs::rename(final_, replaced, code);
    if (!code) fs::rename(partial_, final_, code);
    if (code) throw disk_error(final_.string(), code);
    committed_ = true;
    // What others put beside the dataset stays beside it.
    for (const std::string& name : others_in(replaced)) {
      if (!fs::exists(fs::symlink_status(final_ / name))) fs::rename(replaced / name, final_ / name, code);
    }
    remove_staged(replaced);
  }

 private:
  fs::path final_;
  fs::path partial_;
  std::optional<FolderClaim> claim_;
  bool committed_ = false;
};

/// What train's samples are stratified by: class and site, as one number each; nothing where there are
/// neither.
std::vector<std::int64_t> strata_of(const Originals& originals) {
  const auto& columns = originals.splits.at("train");
  const auto classes = static_cast<std::int64_t>(originals.classes.size());
  std::vector<std::int64_t> strata;
  // The targets are a task's last array; sites come behind it.
  if (classes > 0 && originals.target_shape.empty())
    strata = read_whole<std::int64_t>(*columns[columns.size() - (originals.sites.empty() ? 1 : 2)]);
  if (originals.sites.empty()) return strata;
  const auto sites = read_whole<std::int32_t>(*columns.back());
  strata.resize(sites.size());
  for (std::size_t i = 0; i < sites.size(); ++i) strata[i] += std::max<std::int64_t>(classes, 1) * sites[i];
  return strata;
}

/// Bytes that the chosen samples take, without HDF5's own.
std::size_t bytes_of(const std::vector<ShardArray>& arrays) {
  std::size_t bytes = 0;
  for (const ShardArray& array : arrays)
    bytes +=
        static_cast<std::size_t>(array.rows * element_count(array.row_shape)) * element_bytes(array.type);
  return bytes;
}

/// Counts what was written over all splits.
class Tally {
 public:
  Tally(const StageProgress& report, std::size_t total) : report_(report), total_(total) {}
  void add(std::string_view what, std::size_t bytes) {
    done_ += bytes;
    if (report_)
      report_(what, static_cast<double>(done_) / static_cast<double>(std::max<std::size_t>(total_, 1)));
  }

 private:
  const StageProgress& report_;
  std::size_t total_;
  std::size_t done_ = 0;
};

/// Said before an hour of writing rather than after it.
void require_room(const fs::path& folder, std::size_t bytes) {
  std::error_code code;
  const fs::space_info space = fs::space(folder, code);
  if (code || space.available >= bytes) return;
  throw data_error(fmt::format("the disk is full: {} MiB are needed and {} MiB are free", (bytes >> 20) + 1,
                               space.available >> 20),
                   folder.parent_path().string(), "free some space or choose another --data-root");
}

SplitInfo write_split(const StageOptions& options, const Originals& originals, const std::string& split,
                      const SplitChoice& choice, const fs::path& folder, h5::Library& library, Tally& tally) {
  const auto& columns = originals.splits.at(choice.from);
  const auto samples = static_cast<std::int64_t>(choice.ids.size());
  const std::size_t bytes = bytes_of(select_arrays(originals.task, columns, originals.shape, choice.ids));
  const std::int64_t wanted = options.shards > 0
                                  ? options.shards
                                  : static_cast<std::int64_t>((bytes + kShardBytes - 1) / kShardBytes);
  const std::int64_t shards = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(samples, 1));
  SplitInfo info{.samples = samples};
  for (std::int64_t index = 0; index < shards; ++index) {
    const Range part = part_of(samples, index, shards);
    const std::span<const std::int64_t> ids(choice.ids.data() + part.begin,
                                            static_cast<std::size_t>(part.size()));
    const std::string name = shard_file_name(split, index, shards);
    write_shard(folder / name,
                {.dataset = options.name,
                 .split = split,
                 .shard_index = index,
                 .shard_count = shards,
                 .first_sample = part.begin,
                 .sample_count = part.size()},
                select_arrays(originals.task, columns, originals.shape, ids), library,
                [&](std::size_t done) { tally.add("writing " + name, done); });
    info.shards.push_back({name, part.size(), sha256_of_file(folder / name, ExitCode::data)});
  }
  return info;
}

/// Before anything is written: each number finite, each target a class, and more than one class.
void check_originals(const Originals& originals, const DatasetInfo& info, const std::string& from) {
  const auto check = value_check(info);
  for (const auto& [split, columns] : originals.splits)
    check(columns, originals.splits.size() == 1 ? from : fmt::format("{}, split {}", from, split));
  if (info.classes.empty()) return;
  const auto& train = originals.splits.at("train");
  const auto& targets = train.at(train.size() - (originals.sites.empty() ? 1 : 2));
  const auto classes = read_whole<std::int64_t>(*targets);
  if (std::ranges::adjacent_find(classes, std::ranges::not_equal_to()) == classes.end())
    throw data_error(fmt::format("has samples of one class only, {}", info.classes.at(classes.at(0))), from,
                     "give samples of two classes or more");
}

/// dataset.json is JSON, which is UTF-8: found out now, not when everything else is written.
void require_text(const DatasetInfo& info, const std::string& origin) {
  const auto check = [&origin](const char* what, const std::string& text) {
    if (!is_utf8(text))
      throw data_error(fmt::format("the {} \"{}\" is not UTF-8", what, printable(text, 60)), origin,
                       "convert it, e.g. with iconv -f LATIN1 -t UTF-8, or rename it");
  };
  for (const std::string& name : info.classes) check("class", name);
  for (const std::string& name : info.targets) check("target", name);
  for (const InputColumn& column : info.columns) {
    check("column", column.name);
    check("label", column.label);
    check("label", column.other);
  }
  for (const std::string& value : info.na_values)
    if (!is_utf8(value))
      throw usage_error("is not UTF-8", "--na-values " + printable(value, 60), "give UTF-8 text");
  for (const InputInfo& input : info.inputs) check("input", input.name);
  for (const std::string& name : info.sites) check("site", name);
  for (const SourceInfo& source : info.sources) check("file's name", source.file);
  if (!info.tokenizer) return;
  for (const std::string& token : info.tokenizer->vocabulary) check("token", token);
  for (const std::string& token : info.tokenizer->target_vocabulary) check("token", token);
}

/// Of the samples that train has in the end; none where a sample has a class for each place.
std::vector<std::int64_t> samples_of_class(const Originals& originals,
                                           const std::vector<std::int64_t>& train) {
  std::vector<std::int64_t> counts(originals.classes.size());
  if (counts.empty() || !originals.target_shape.empty()) return {};
  const auto& columns = originals.splits.at("train");
  const auto classes = read_whole<std::int64_t>(*columns[columns.size() - (originals.sites.empty() ? 1 : 2)]);
  for (const auto row : train) ++counts.at(static_cast<std::size_t>(classes[static_cast<std::size_t>(row)]));
  return counts;
}

/// A class that train has no sample of cannot be learned.
void remark_on_empty_classes(const DatasetInfo& info, StageReport& report) {
  std::vector<std::string> names;
  for (std::size_t k = 0; k < report.samples_of_class.size(); ++k)
    if (report.samples_of_class[k] == 0) names.push_back(printable(info.classes[k], 40));
  constexpr std::size_t kMostShown = 10;
  const bool more = names.size() > kMostShown;
  if (more) names.resize(kMostShown);
  if (!names.empty())
    report.remarks.push_back(
        fmt::format("train has no sample of the class{} {}{}: number classes without gaps, "
                    "or give samples of each",
                    names.size() == 1 ? "" : "es", fmt::join(names, ", "), more ? ", ..." : ""));
}

void require_some_inputs(const Originals& originals, const std::string& from) {
  const auto check = [&from](const std::vector<std::int64_t>& shape, const std::string& what) {
    if (std::ranges::count(shape, 0) > 0)
      throw data_error(
          fmt::format("has {} of shape [n, {}], in which there is no number", what, fmt::join(shape, ", ")),
          from, "give inputs of at least one number");
  };
  check(originals.shape, "inputs");
  for (const auto& input : originals.inputs) check(input.shape, "an array " + printable(input.name, 40));
}

DatasetInfo write_dataset(const StageOptions& options, Originals originals, h5::Library& library,
                          const StageProgress& progress, StageReport* report) {
  std::map<std::string, std::int64_t> samples;
  for (const auto& [split, columns] : originals.splits)
    samples[split] = sample_count(originals.task, columns, originals.shape);
  if (samples.at("train") < 1)
    throw data_error("holds no training samples", options.from.string(), "give at least one");
  require_some_inputs(originals, options.from.string());
  const bool in_order = layout_of_task(originals.task) == SampleLayout::blocks;
  if (options.no_validation && samples.contains("validation"))
    throw usage_error(
        in_order ? "running text ends with its validation split" : "the original files have that split",
        "--validation none", in_order ? "leave it out" : "leave it out, or move the split's files away");
  const auto plan =
      in_order ? keep_splits(samples) : plan_splits(samples, strata_of(originals), options.split_rule());
  if (originals.complete) originals.complete(originals, plan.at("train").ids);

  DatasetInfo info{.name = options.name,
                   .task = originals.task,
                   .classes = originals.classes,
                   .targets = originals.targets,
                   .target_scales = originals.target_scales,
                   .target_shape = originals.target_shape,
                   .shape = originals.shape,
                   .tokenizer = originals.tokenizer,
                   .columns = originals.columns,
                   .ignored_columns = originals.ignored_columns,
                   .na_values = originals.na_values,
                   .inputs = originals.inputs,
                   .sites = originals.sites,
                   .seed = options.seed,
                   .sources = originals.sources};
  check_originals(originals, info, options.from.string());
  if (layout_of_task(info.task) == SampleLayout::dense) {
    if (progress) progress("measuring mean and std", 0.0);
    const auto statistics =
        channel_statistics(*originals.splits.at("train")[0], originals.shape, plan.at("train").ids);
    info.mean = statistics.mean;
    info.std_dev = statistics.std_dev;
  }

  require_text(info, options.from.string());
  dataset_info_text(info);  // refuses what would be too large, before a shard is written
  PartialFolder folder(options.data_root, options.name);
  std::size_t total = 0;
  for (const auto& [split, choice] : plan)
    total += bytes_of(
        select_arrays(originals.task, originals.splits.at(choice.from), originals.shape, choice.ids));
  require_room(folder.path(), total);
  Tally tally(progress, total);
  for (const auto& [split, choice] : plan)
    if (!choice.ids.empty())
      info.splits[split] = write_split(options, originals, split, choice, folder.path(), library, tally);
  write_dataset_info(folder.path(), info);
  if (report != nullptr)
    *report = {.columns = std::move(originals.table),
               .samples_of_class = samples_of_class(originals, plan.at("train").ids),
               .remarks = std::move(originals.remarks)};
  if (report != nullptr) remark_on_empty_classes(info, *report);
  folder.commit();
  return info;
}

void require_new_name(const StageOptions& options) {
  std::error_code ignored;
  const fs::path folder = options.data_root / options.name;
  for (const fs::path& path : {options.data_root, folder}) {
    require_own_folder(path, {.subject = path.string(),
                              .advice = "choose another --data-root or another name",
                              .code = ExitCode::data});
  }
  if (!options.overwrite && fs::exists(folder, ignored))
    throw data_error("there is already a dataset of this name", folder.string(),
                     "choose another name, or replace it with --overwrite");
  if (options.overwrite) require_replaceable(folder);
}

}  // namespace

SplitRule StageOptions::split_rule() const {
  return {.seed = seed, .validation = no_validation ? Validation::none : Validation::set_aside};
}

void StageOptions::validate() const {
  const bool plain = is_plain_name(name) && !name.ends_with(".partial") && !name.ends_with(".replaced");
  if (!plain)
    throw usage_error("is no name for a dataset", "'" + name + "'", "use a plain folder name such as mnist");
  if (shards < 0)
    throw usage_error("is below 0", "--shards",
                      "give the number of files per split, or 0 to let dtrain choose");
  if (!format.empty() && find_format(format) == nullptr)
    throw usage_error("does not know '" + format + "'", "--format",
                      fmt::format("use one of {}", fmt::join(format_names(), ", ")));
  if (!task.empty() && task != "table_classification" && task != "regression" && has_originals(format))
    throw usage_error("is no task of a table", "--task " + task, "use table_classification or regression");
  if (!standardize.empty() && standardize != "on" && standardize != "off")
    throw usage_error("is neither on nor off", "--standardize " + standardize, "use on or off");
  if (from.empty() && has_originals(format))
    throw usage_error("is missing", "--from", "give the file or folder to stage");
  text.validate();
}

DatasetInfo stage(const StageOptions& options, h5::Library& library, const StageProgress& progress,
                  StageReport* report) {
  options.validate();
  if (!has_originals(options.format))
    return stage_synthetic(options, {.seed = options.seed}, library, progress, report);
  require_new_name(options);
  try {
    if (progress) progress("reading " + options.from.string(), 0.0);
    Originals originals = understand_from_outside({.subject = options.from.string(),
                                                   .advice = "check the files given to --from",
                                                   .code = ExitCode::data},
                                                  [&] { return read_originals(options, library); });
    return write_dataset(options, std::move(originals), library, progress, report);
  } catch (const fs::filesystem_error& error) {
    throw disk_error(error.path1().string(), error.code());
  }
}

DatasetInfo stage_synthetic(const StageOptions& options, const SyntheticSpec& spec, h5::Library& library,
                            const StageProgress& progress, StageReport* report) {
  StageOptions named = options;
  named.format = "synthetic";
  named.validate();
  require_new_name(named);
  try {
    return write_dataset(named, synthetic_originals(spec), library, progress, report);
  } catch (const fs::filesystem_error& error) {
    throw disk_error(error.path1().string(), error.code());
  }
}

}  // namespace dtrain::data
