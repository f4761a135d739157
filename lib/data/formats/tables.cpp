#include "data/formats/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <set>

#include "core/error.hpp"
#include "data/formats/split_names.hpp"
#include "data/formats/table_columns.hpp"
#include "data/formats/table_target.hpp"
#include "data/import/fill_gaps.hpp"
#include "data/import/source_list.hpp"
#include "data/shards/column_over.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

bool has_suffix(const std::string& name, std::initializer_list<const char*> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](const char* s) { return name.ends_with(s); });
}

/// The split that a file's name or folder speaks of; empty for none.
std::string split_of(const std::string& name) {
  const auto split = split_of_name(fs::path(name).filename().string());
  return split ? *split : split_of_folders(name).value_or("");
}

/// Whether a file's name begins with the whole word of a split that is not train, as in `test-2.csv`, or its
/// folder is such a word: a site is hardly called so.
bool is_held_out(const std::string& name) {
  const std::string base = fs::path(name).filename().string();
  const auto end = std::ranges::find_if(base, [](unsigned char sign) { return std::isalpha(sign) == 0; });
  const auto split = split_of_word({base.begin(), end});
  return (split ? split : split_of_folders(name)).value_or("train") != "train";
}

/// Files of one name in several folders are told apart by these.
std::vector<std::string> distinct_names(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const auto& path : paths) names.push_back(fs::path(path).filename().string());
  const std::set<std::string> different(names.begin(), names.end());
  return different.size() == names.size() ? names : paths;
}

/// All files, and the split and the name of each.
struct Files {
  std::vector<TableText> texts;
  std::vector<std::string> splits;  // of each
  std::vector<std::string> names;
  bool split_by_name = false;
};

/// A file that is one split whole, whatever it is called.
void add_split(Files& files, const fs::path& from, const std::string& split,
               const std::vector<std::string>& gaps) {
  if (from.empty()) return;
  visit_files(from, [&](OriginalFile& file) {
    files.texts.emplace_back(std::move(file.content), file.origin, 2, gaps);
    if (files.texts.back().rows() == 0)
      throw data_error("holds no rows below its header", file.origin,
                       fmt::format("give some, or leave --{} out", split));
    files.names.push_back(fs::path(file.name).filename().string());
    files.splits.push_back(split);
    return true;
  });
}

Files read_files(const StageOptions& options) {
  Files files;
  const fs::path& from = options.from;
  const auto gaps = parse_na_values(options.na_values);
  const auto take = [&](OriginalFile& file) {
    files.texts.emplace_back(std::move(file.content), file.origin, 2, gaps);
    files.names.push_back(file.name);
    files.splits.push_back(split_of(file.name));
    return true;
  };
  visit_files(from, take, [](const std::string& name) {
    return has_suffix(name, {".csv", ".tsv", ".data"});
  });
  if (files.texts.empty() && !fs::is_directory(from)) visit_files(from, take);  // whatever it is called
  if (files.texts.empty())
    throw data_error("holds no .csv, .tsv or .data file", from.string(), "give the table itself");
  if (!options.validation.empty() || !options.test.empty()) {
    files.split_by_name = true;  // by the options' names
    std::ranges::fill(files.splits, "train");
    files.names = distinct_names(files.names);
    add_split(files, options.validation, "validation", gaps);
    add_split(files, options.test, "test", gaps);
    return files;
  }
  files.split_by_name = std::ranges::find(files.splits, "train") != files.splits.end();
  const auto held_out = std::ranges::find_if(files.names, is_held_out);
  if (!files.split_by_name && files.names.size() > 1 && held_out != files.names.end()) {
    throw data_error(
        "is held out by its name, and no file is called train",
        files.texts[static_cast<std::size_t>(held_out - files.names.begin())].origin(),
        "call the others train*, name it with --validation or --test, or rename it where it is a site");
  }
  files.names = distinct_names(files.names);
  for (std::size_t i = 0; i < files.splits.size(); ++i) {
    if (!files.split_by_name) files.splits[i] = "train";
    if (files.splits[i].empty())
      throw data_error("is neither train, validation nor test by its name, unlike its neighbours",
                       files.texts[i].origin(), "rename it, or move it away");
  }
  return files;
}

std::vector<const TableColumn*> input_columns(const std::vector<TableColumn>& columns,
                                              const StageOptions& options, const TableTargets& targets) {
  std::vector<bool> taken(columns.size(), true);
  for (const TableColumn& column : columns)
    if (targets.contains(column)) taken[column.index] = false;
  for (const std::string& name : listed_columns(options.ignore, names_of(columns)))
    taken[find_column(columns, name, "--ignore").index] = false;
  if (!options.site.empty()) taken[find_column(columns, options.site, "--site").index] = false;
  std::vector<const TableColumn*> inputs;
  for (const TableColumn& column : columns)
    if (taken[column.index]) inputs.push_back(&column);
  if (inputs.empty()) throw usage_error("leaves no column as input", "--ignore", "leave fewer out");
  return inputs;
}

/// The owners of the rows: the values of a column, or the files themselves.
class Sites {
 public:
  Sites(const Files& files, const std::vector<TableColumn>& columns, const StageOptions& options)
      : files_(files) {
    if (!options.site.empty()) {
      column_ = &find_column(columns, options.site, "--site");
      values_.emplace(files.texts, *column_);
      names_ = values_->names();
    } else if (!files.split_by_name && files.texts.size() > 1) {
      names_ = files.names;
    }
  }
  const std::vector<std::string>& names() const { return names_; }
  std::int32_t of(std::size_t file, std::int64_t row) const {
    if (column_ == nullptr) return static_cast<std::int32_t>(file);
    const std::string_view cell = files_.texts[file].cell(row, column_->index);
    if (is_missing(cell))
      throw data_error(fmt::format("has no site in line {}", files_.texts[file].line(row)),
                       files_.texts[file].origin(), "fill it in, or leave the row out");
    return static_cast<std::int32_t>(values_->position_of(cell));
  }

 private:
  const Files& files_;
  const TableColumn* column_ = nullptr;
  std::optional<ColumnValues> values_;
  std::vector<std::string> names_;
};

/// For people: each column, and what may be a mistake.
void report_columns(const Files& files, const std::vector<TableColumn>& columns, const StageOptions& options,
                    const TableTargets& targets, const std::vector<const TableColumn*>& inputs,
                    Originals& found) {
  using Role = ColumnReport::Role;
  for (const TableColumn& column : columns) {
    const bool is_input = std::ranges::find(inputs, &column) != inputs.end();
    const bool is_site = !options.site.empty() && &find_column(columns, options.site, "--site") == &column;
    // What is left out may have as many labels as rows.
    const bool is_used = is_input || is_site || targets.contains(column);
    ColumnReport report = is_used ? report_of(files.texts, column) : ColumnReport{.name = column.name};
    report.role = targets.contains(column) ? Role::target
                  : is_site                ? Role::site
                  : is_input               ? Role::input
                                           : Role::ignored;
    if (is_input && report.is_constant && !column.gaps)
      found.remarks.push_back(
          fmt::format("the column {} has the same value in every row: it tells nothing, "
                      "--ignore {} leaves it out",
                      column.name, column.name));
    if (is_input && report.looks_like_id)
      found.remarks.push_back(fmt::format(
          "the column {} has another {} in every row, like an "
          "identifier: --ignore {} leaves it out",
          column.name, report.kind == ColumnReport::Kind::numbers ? "whole number" : "label", column.name));
    if (report.role == Role::ignored || is_site) found.ignored_columns.push_back(column.name);
    found.table.push_back(std::move(report));
  }
}

/// A shard has targets as float32, of seven digits.
void remark_on_coarse_targets(Originals& originals) {
  constexpr double kFewest = 1e-5;
  for (const TargetScale& target : originals.target_scales) {
    if (target.scale >= kFewest * std::abs(target.shift)) continue;
    originals.remarks.push_back(
        fmt::format("a target lies around {:.10g} with a deviation of {:.3g}: a float32 keeps seven digits, "
                    "so subtract a number from the column before it is staged",
                    target.shift, target.scale));
  }
}

}  // namespace

bool is_table_file(const OriginalFile& start) {
  return has_suffix(start.name, {".csv", ".tsv"}) || looks_like_csv(start.content);
}

Originals read_tables(const StageOptions& options) {
  const Files files = read_files(options);
  const auto columns = columns_of(files.texts);
  const TableTargets targets(files.texts, columns, options);
  const Sites sites(files, columns, options);
  std::vector<const TableColumn*> origins;  // of each input
  Originals found{.task = targets.task(),
                  .classes = targets.classes(),
                  .targets = targets.names(),
                  .sites = sites.names()};
  for (const TableColumn* column : input_columns(columns, options, targets))
    for (InputColumn& input : inputs_of(files.texts, *column)) {
      found.columns.push_back(std::move(input));
      origins.push_back(column);
    }
  report_columns(files, columns, options, targets, origins, found);
  const auto width = static_cast<std::int64_t>(found.columns.size());
  constexpr std::int64_t kManyInputs = 50'000;  // but a table of numbers may have as many columns
  if (width > kManyInputs && width > 2 * std::ssize(columns))
    throw data_error(fmt::format("has {} columns, whose labels would make {} inputs", columns.size(), width),
                     options.from.string(), "leave columns of many labels out with --ignore");
  found.shape = {width};
  found.na_values = parse_na_values(options.na_values);

  for (const char* split : {"train", "validation", "test"}) {
    std::int64_t rows = 0;
    for (std::size_t file = 0; file < files.texts.size(); ++file)
      rows += files.splits[file] == split ? files.texts[file].rows() : 0;
    std::vector<double> inputs;  // exact until they are scaled
    inputs.reserve(static_cast<std::size_t>(rows * width));
    TableTargets::Rows wanted(targets, rows);
    std::vector<std::int32_t> owners;
    for (std::size_t file = 0; file < files.texts.size(); ++file) {
      if (files.splits[file] != split) continue;
      const TableText& text = files.texts[file];
      for (std::int64_t row = 0; row < text.rows(); ++row) {
        for (std::size_t i = 0; i < origins.size(); ++i)
          inputs.push_back(input_value(found.columns[i], *origins[i], text.cell(row, origins[i]->index)));
        wanted.add(text, row);
        if (!sites.names().empty()) owners.push_back(sites.of(file, row));
      }
    }
    if (wanted.count() == 0) continue;
    auto& arrays = found.splits[split];
    arrays = {column_over(std::move(inputs), {width}), wanted.column()};
    if (!sites.names().empty()) arrays.push_back(column_from(owners, {}));
  }
  found.sources = source_list(options.from);
  for (const fs::path& split : {options.validation, options.test})
    if (!split.empty()) std::ranges::move(source_list(split), std::back_inserter(found.sources));
  const Scaling scaling = options.standardize == "off" ? Scaling::none : Scaling::standardize;
  found.complete = [scaling](Originals& originals, std::span<const std::int64_t> train) {
    fill_gaps(originals, train, scaling);
    if (scaling != Scaling::standardize || originals.task != "regression") return;
    scale_targets(originals, train);
    remark_on_coarse_targets(originals);
  };
  return found;
}

}  // namespace dtrain::data
