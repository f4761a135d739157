#include "data/formats/table_columns.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "data/formats/dates.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kMostLabels = 100;
constexpr std::size_t kMostWordsOfNumbers = 20;  // such as 0, 1, 2 and 3+: labels
// A word that one cell of 20 or fewer has beside three different numbers, such as 'missing', is no label.
constexpr std::size_t kFewestOfAScale = 3;
constexpr std::int64_t kOthersPerStray = 20;

double number_of(std::string_view cell) {
  double number = std::numeric_limits<double>::quiet_NaN();
  read_number(cell, number);
  return number;
}

/// What was meant as a number: 1,5 or 1.000,5 or 12% or 3.5kg or inf.
bool is_odd_number(std::string_view cell) {
  if (cell.starts_with('+') || cell.starts_with('-')) cell.remove_prefix(1);
  if (cell.empty()) return false;
  if (cell.front() == '#' || cell.starts_with("inf") || cell.starts_with("Inf") || cell.starts_with("INF"))
    return true;
  constexpr std::string_view kOfNumbers = "0123456789.,'eE+- ";
  if (cell.front() < '0' || cell.front() > '9') return false;
  const auto unit = std::min(cell.find_first_not_of(kOfNumbers), cell.size());
  return cell.size() - unit <= 3;  // %, kg, EUR
}

/// A number with a decimal comma: 3,5 or -1.000,5.
bool has_decimal_comma(std::string_view cell) {
  if (cell.starts_with('+') || cell.starts_with('-')) cell.remove_prefix(1);
  const auto comma = cell.find(',');
  const auto digits = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (comma == std::string_view::npos || !digits(cell.substr(comma + 1))) return false;
  std::string whole(cell.substr(0, comma));
  std::erase(whole, '.');
  return digits(whole);
}

void note(TableColumn& column, double value) {
  column.least = column.empty ? value : std::min(column.least, value);
  column.most = column.empty ? value : std::max(column.most, value);
}

/// The next value of a column that had nothing but dates so far.
void note_date(TableColumn& column, std::string_view cell) {
  const auto date = read_date(cell);
  column.dates = date.has_value();
  if (!date) return;
  column.times = column.times || date->has_time;
  note(column, date->days);
}

TableColumn scan(std::span<const TableText> files, std::size_t index, const std::string& name) {
  TableColumn column{.name = name, .index = index};
  double number = 0;
  column.dates = true;
  for (const TableText& file : files)
    for (std::int64_t row = 0; row < file.rows(); ++row) {
      const std::string_view cell = file.cell(row, index);
      const bool gap = is_missing(cell);
      ++(gap ? column.missing : column.values);
      if (gap) continue;
      column.numeric = column.numeric && read_number(cell, number);
      if (column.numeric) note(column, number);
      column.dates = column.dates && !column.numeric;
      if (column.dates) note_date(column, cell);
      column.empty = false;
    }
  column.gaps = column.missing > 0;
  column.dates = column.dates && !column.empty;
  return column;
}

/// Whether `holds` does for each value of a column of numbers; ends at the first for which it does not.
template <typename Holds>
bool all_numbers(std::span<const TableText> files, const TableColumn& column, const Holds& holds) {
  for (const TableText& file : files)
    for (std::int64_t row = 0; row < file.rows(); ++row) {
      const std::string_view cell = file.cell(row, column.index);
      if (!is_missing(cell) && !holds(number_of(cell))) return false;
    }
  return true;
}

bool are_different_whole_numbers(std::span<const TableText> files, const TableColumn& column) {
  std::vector<double> numbers;
  const bool whole = all_numbers(files, column, [&](double number) {
    numbers.push_back(number);
    return number == std::floor(number);
  });
  if (!whole) return false;
  std::ranges::sort(numbers);
  return std::ranges::adjacent_find(numbers) == numbers.end();
}

/// What a column may be meant to hold, and how its cells tell.
struct MeantKind {
  std::string_view plural;
  std::string_view like;  ///< How to write one.
  bool (*reads)(std::string_view cell);
  bool (*was_meant)(std::string_view cell);  ///< Of a cell that cannot be read.
  bool (*is_sure)(std::string_view cell);    ///< Of such a cell: that it is no label, however few there are.
};

/// Refuses a column most of whose cells are of the kind, or were meant to be. A few different values may be
/// labels, unless each that cannot be read is sure to be none, or is a rare word.
void require_plain(const MeantKind& kind, std::span<const TableText> files, const TableColumn& column) {
  if (column.numeric || column.dates || column.empty) return;
  std::set<std::string_view> values;
  std::int64_t read = 0;
  std::int64_t meant = 0;  // those among them
  std::int64_t words = 0;  // of those that cannot be read: without a digit
  std::set<std::string_view> different;
  bool sure = true;
  std::string odd;  // the first that cannot be read
  std::string place;
  for (const TableText& file : files)
    for (std::int64_t row = 0; row < file.rows(); ++row) {
      const std::string_view cell = file.cell(row, column.index);
      if (is_missing(cell)) continue;
      const bool plain = kind.reads(cell);
      read += plain ? 1 : 0;
      meant += plain || kind.was_meant(cell) ? 1 : 0;
      values.insert(cell);
      if (plain) different.insert(cell);
      words += plain || cell.find_first_of("0123456789") != std::string_view::npos ? 0 : 1;
      sure = sure && (plain || kind.is_sure(cell));
      if (plain || !odd.empty()) continue;
      odd = printable(cell, 40);
      place = fmt::format("line {} of {}", file.line(row), file.origin());
    }
  const bool few = values.size() <= kMostWordsOfNumbers;
  const bool stray = different.size() >= kFewestOfAScale && words == column.values - read &&
                     kOthersPerStray * words <= column.values;
  if ((few && !sure && !stray) || 2 * meant < column.values) return;
  const std::string remedy =
      few && stray ? fmt::format("correct it, or say that it stands for a gap with --na-values '{}'{}", odd,
                                 kind.plural == "numbers"
                                     ? "; numbers that are labels can be written with a letter, such as c1"
                                     : "")
      : few        ? "write numbers like -1234.5, and labels without a comma, such as 1+2"
      : 2 * read < column.values
          ? fmt::format("write {} like {}, or leave the column out with --ignore {}", kind.plural, kind.like,
                        column.name)
          : fmt::format("correct it, or say that it stands for a gap with --na-values '{}'", odd);
  throw data_error(fmt::format("has {} in {} of {} cells of the column {}, and '{}' in {}", kind.plural,
                               grouped(read), grouped(column.values), column.name, odd, place),
                   files.front().origin(), remedy);
}

}  // namespace

std::vector<TableColumn> columns_of(std::span<const TableText> files) {
  const TableText& first = files.front();
  if (std::ranges::all_of(files, [](const TableText& file) { return file.rows() == 0; }))
    throw data_error("has no rows below its header", first.origin(), "give at least one");
  for (const TableText& file : files)
    if (file.width() != first.width() || file.header() != first.header())
      throw data_error(fmt::format("has other columns than {}", first.origin()), file.origin(),
                       "give files that belong together, all with the same header or all without");
  const auto names = first.column_names();
  std::set<std::string_view> known;
  for (const std::string& name : names)
    if (!known.insert(name).second)
      throw data_error(fmt::format("has two columns {}", printable(name, 100)), first.origin(),
                       "give each column a name of its own");
  std::vector<TableColumn> columns;
  for (std::size_t index = 0; index < first.width(); ++index)
    columns.push_back(scan(files, index, names[index]));
  return columns;
}

std::vector<std::string> names_of(const std::vector<TableColumn>& columns) {
  std::vector<std::string> names;
  for (const TableColumn& column : columns) names.push_back(column.name);
  return names;
}

const TableColumn& find_column(const std::vector<TableColumn>& columns, const std::string& name,
                               const std::string& option) {
  const auto named = std::ranges::find(columns, name, &TableColumn::name);
  if (named != columns.end()) return *named;
  const auto index = parse_number<std::size_t>(name);
  if (index && *index < columns.size()) return columns[*index];
  throw usage_error("there is no such column", option + " " + name,
                    fmt::format("use one of {}", fmt::join(names_of(columns), ", ")));
}

ColumnValues::ColumnValues(std::span<const TableText> files, const TableColumn& column)
    : numeric_(column.numeric) {
  std::set<std::string_view> labels;
  std::map<double, std::string_view> numbers;
  for (const TableText& file : files)
    for (std::int64_t row = 0; row < file.rows(); ++row) {
      const std::string_view cell = file.cell(row, column.index);
      if (is_missing(cell)) continue;
      if (numeric_) {
        numbers.emplace(number_of(cell), cell);
      } else {
        labels.insert(cell);
      }
    }
  names_.assign(labels.begin(), labels.end());
  for (const auto& [number, name] : numbers) {
    numbers_.push_back(number);
    names_.emplace_back(name);
  }
}

std::int64_t ColumnValues::position_of(std::string_view cell) const {
  if (numeric_) return std::ranges::lower_bound(numbers_, number_of(cell)) - numbers_.begin();
  return std::ranges::lower_bound(names_, cell) - names_.begin();
}

void require_plain_numbers(std::span<const TableText> files, const TableColumn& column) {
  require_plain({.plural = "numbers",
                 .like = "-1234.5 and leave gaps empty",
                 .reads =
                     [](std::string_view cell) {
                       double number = 0;
                       return read_number(cell, number);
                     },
                 .was_meant = is_odd_number,
                 .is_sure = has_decimal_comma},
                files, column);
}

void require_plain_dates(std::span<const TableText> files, const TableColumn& column) {
  require_plain({.plural = "dates",
                 .like = "2024-12-31 or 2024-12-31T18:30",
                 .reads = [](std::string_view cell) { return read_date(cell).has_value(); },
                 .was_meant = looks_like_date,
                 .is_sure = looks_like_date},
                files, column);
}

ColumnReport report_of(std::span<const TableText> files, const TableColumn& column) {
  ColumnReport report{.name = column.name, .gaps = column.missing, .values = column.values};
  if (column.dates) {
    report.kind = ColumnReport::Kind::dates;
    report.first_date = date_text(column.least);
    report.last_date = date_text(column.most);
    report.has_times = column.times;
    report.is_constant = column.least == column.most;
    return report;
  }
  constexpr std::int64_t kFewestIds = 20;
  const bool enough = column.values >= kFewestIds;
  if (column.numeric) {
    report.is_constant = column.least == column.most && !column.empty;
    report.looks_like_id = enough && are_different_whole_numbers(files, column);
    return report;
  }
  report.kind = ColumnReport::Kind::labels;
  report.labels = ColumnValues(files, column).names();
  const auto different = static_cast<std::int64_t>(report.labels.size());
  report.is_constant = different == 1;
  report.looks_like_id = enough && different == column.values;
  return report;
}

bool has_few_whole_numbers(std::span<const TableText> files, const TableColumn& column, std::size_t most) {
  std::set<double> numbers;
  return all_numbers(files, column, [&](double number) {
    numbers.insert(number);
    return number == std::floor(number) && numbers.size() <= most;
  });
}

void require_small_numbers(std::span<const TableText> files, const TableColumn& column) {
  if (!column.numeric) return;
  for (const TableText& file : files)
    for (std::int64_t row = 0; row < file.rows(); ++row) {
      const std::string_view cell = file.cell(row, column.index);
      if (is_missing(cell) || std::isfinite(static_cast<float>(number_of(cell)))) continue;
      throw data_error(fmt::format("has {} in line {} of {}, column {}, more than a float32 holds",
                                   printable(cell, 40), file.line(row), file.origin(), column.name),
                       files.front().origin(), "scale the column to below 3.4e38, or leave the row out");
    }
}

std::vector<InputColumn> inputs_of(std::span<const TableText> files, const TableColumn& column) {
  require_plain_dates(files, column);
  require_plain_numbers(files, column);
  require_small_numbers(files, column);
  const std::string remedy = "leave it out with --ignore " + column.name;
  if (column.empty)
    throw data_error("has no value in the column " + column.name, files.front().origin(), remedy);
  std::vector<InputColumn> inputs;
  if (column.numeric) {
    inputs.push_back({.name = column.name});
  } else if (column.dates) {
    for (const std::string_view part : date_parts(column.times)) {
      inputs.push_back({.name = column.name, .label = {}, .part = std::string(part)});
      if (part == "years") inputs.back().shift = date_part(part, column.least);
    }
  } else {
    const auto labels = ColumnValues(files, column).names();
    if (labels.size() > kMostLabels)
      throw data_error(fmt::format("has {} different labels in the column {}", labels.size(), column.name),
                       files.front().origin(), remedy);
    // One of two says all.
    for (std::size_t i = labels.size() == 2 ? 1 : 0; i < labels.size(); ++i)
      inputs.push_back({.name = column.name, .label = labels[i]});
    if (labels.size() == 2) inputs.back().other = labels.front();
  }
  if (column.gaps) inputs.push_back({.name = column.name, .marks_gaps = true});
  return inputs;
}

double input_value(const InputColumn& input, const TableColumn& column, std::string_view cell) {
  const bool gap = is_missing(cell);
  if (input.marks_gaps) return gap ? 1.0 : 0.0;
  if (gap) return std::numeric_limits<double>::quiet_NaN();
  if (column.numeric) return number_of(cell);
  if (column.dates) return date_part(input.part, read_date(cell).value().days);
  return cell == input.label ? 1.0 : 0.0;
}

}  // namespace dtrain::data
