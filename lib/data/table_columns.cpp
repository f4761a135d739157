#include "data/table_columns.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/error.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kMostLabels = 100;

double number_of(std::string_view cell) {
  double number = std::numeric_limits<double>::quiet_NaN();
  read_number(cell, number);
  return number;
}

TableColumn scan(std::span<const TableText> files, std::size_t index) {
  const auto& header = files.front().header();
  TableColumn column{.name = header.empty() || header[index].empty() ? std::to_string(index) : header[index],
                     .index = index};
  double number = 0;
  for (const TableText& file : files)
    for (std::int64_t row = 0; row < file.rows(); ++row) {
      const std::string_view cell = file.cell(row, index);
      const bool gap = is_missing(cell);
      column.gaps = column.gaps || gap;
      column.empty = column.empty && gap;
      if (!gap && column.numeric && !read_number(cell, number)) column.numeric = false;
    }
  return column;
}

}  // namespace

std::vector<TableColumn> columns_of(std::span<const TableText> files) {
  const TableText& first = files.front();
  for (const TableText& file : files)
    if (file.width() != first.width() || file.header() != first.header())
      throw data_error(fmt::format("has other columns than {}", first.origin()), file.origin(),
                       "give files that belong together, all with the same header or all without");
  std::vector<TableColumn> columns;
  for (std::size_t index = 0; index < first.width(); ++index) columns.push_back(scan(files, index));
  return columns;
}

const TableColumn& find_column(const std::vector<TableColumn>& columns, const std::string& name,
                               const std::string& option) {
  const auto named = std::ranges::find(columns, name, &TableColumn::name);
  if (named != columns.end()) return *named;
  std::size_t index = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (code == std::errc() && end == name.data() + name.size() && index < columns.size())
    return columns[index];
  std::vector<std::string> names;
  for (const TableColumn& column : columns) names.push_back(column.name);
  throw usage_error("there is no such column", option + " " + name,
                    fmt::format("use one of {}", fmt::join(names, ", ")));
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
  whole_ = numeric_ && std::ranges::all_of(numbers_, [](double n) { return n == std::floor(n); });
}

std::int64_t ColumnValues::position_of(std::string_view cell) const {
  if (numeric_) return std::ranges::lower_bound(numbers_, number_of(cell)) - numbers_.begin();
  return std::ranges::lower_bound(names_, cell) - names_.begin();
}

std::vector<InputColumn> inputs_of(std::span<const TableText> files, const TableColumn& column) {
  const std::string remedy = "leave it out with --ignore " + column.name;
  if (column.empty)
    throw data_error("has no value in the column " + column.name, files.front().origin(), remedy);
  std::vector<InputColumn> inputs;
  if (column.numeric) {
    inputs.push_back({.name = column.name});
  } else {
    const auto labels = ColumnValues(files, column).names();
    if (labels.size() > kMostLabels)
      throw data_error(fmt::format("has {} different labels in the column {}", labels.size(), column.name),
                       files.front().origin(), remedy);
    // One of two says all.
    for (std::size_t i = labels.size() == 2 ? 1 : 0; i < labels.size(); ++i)
      inputs.push_back({.name = column.name, .label = labels[i]});
  }
  if (column.gaps) inputs.push_back({.name = column.name, .marks_gaps = true});
  return inputs;
}

float input_value(const InputColumn& input, const TableColumn& column, std::string_view cell) {
  const bool gap = is_missing(cell);
  if (input.marks_gaps) return gap ? 1.0F : 0.0F;
  if (gap) return std::numeric_limits<float>::quiet_NaN();
  if (column.numeric) return static_cast<float>(number_of(cell));
  return cell == input.label ? 1.0F : 0.0F;
}

}  // namespace dtrain::data
