#include "data/unlabelled/new_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "data/formats/dates.hpp"
#include "data/formats/table_text.hpp"
#include "data/import/archive.hpp"

namespace dtrain::data {
namespace {

/// A column of the original table, and the inputs that it became.
struct TrainedColumn {
  std::string name;
  std::vector<std::size_t> inputs;
  bool numeric = true;
  bool dates = false;
  bool had_gaps = false;
  std::vector<std::string_view> labels;  // that the training had; empty where they are not all known
};

std::vector<TrainedColumn> columns_behind(const std::vector<InputColumn>& inputs) {
  std::vector<TrainedColumn> columns;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    auto column = std::ranges::find(columns, inputs[i].name, &TrainedColumn::name);
    if (column == columns.end()) column = columns.insert(column, {.name = inputs[i].name});
    column->inputs.push_back(i);
    column->had_gaps = column->had_gaps || inputs[i].marks_gaps;
    column->dates = column->dates || !inputs[i].part.empty();
    column->numeric = column->numeric && inputs[i].label.empty() && inputs[i].part.empty();
    if (inputs[i].label.empty()) continue;
    column->labels.push_back(inputs[i].label);
    if (!inputs[i].other.empty()) column->labels.push_back(inputs[i].other);
  }
  for (auto& column : columns)
    if (column.labels.size() == 1) column.labels.clear();  // the other one was not kept
  return columns;
}

/// A file may have any number of columns.
std::string listed(const std::vector<std::string>& names, const char* between = ", ") {
  return printable(fmt::format("{}", fmt::join(names, between)));
}

TableText read_table(const UnlabelledOptions& options, const std::vector<std::string>& gaps_of_training) {
  std::optional<TableText> table;
  auto gaps = parse_na_values(options.na_values);
  gaps.insert(gaps.end(), gaps_of_training.begin(), gaps_of_training.end());
  visit_files(options.from, [&](OriginalFile& file) {
    if (table) throw data_error("is a second file", file.origin, "give one table at a time");
    table.emplace(std::move(file.content), file.origin, 1, gaps);
    return true;
  });
  if (!table) throw data_error("holds no file", options.from.string(), "give a table");
  return std::move(*table);
}

/// Columns that are no inputs.
struct Ignored {
  const std::vector<std::string>& by_training;  // and may be missing
  const std::string& by_user;                   // NAME,NAME
};

/// Which of the columns `names` are left out; those that the training left out are a remark. Throws
/// usage_error for a name of the user's that is not there.
std::vector<bool> left_out(const std::vector<std::string>& names, const Ignored& ignored,
                           std::vector<std::string>& remarks) {
  std::vector<bool> out(names.size(), false);
  for (const std::string& name : listed_columns(ignored.by_user, names)) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      throw usage_error("there is no such column", "--ignore " + name,
                        fmt::format("use some of {}", listed(names)));
    out[static_cast<std::size_t>(found - names.begin())] = true;
  }
  std::vector<std::string> as_in_training;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (out[i] || std::ranges::find(ignored.by_training, names[i]) == ignored.by_training.end()) continue;
    out[i] = true;
    as_in_training.push_back(names[i]);
  }
  if (!as_in_training.empty())
    remarks.push_back(fmt::format("left out as in the training: {}", listed(as_in_training)));
  return out;
}

/// Where each trained column stands in the new table. Throws data_error.
std::vector<std::size_t> places_of(const std::vector<TrainedColumn>& columns, const TableText& table,
                                   const Ignored& ignored, std::vector<std::string>& remarks) {
  const auto names = table.column_names();
  std::vector<bool> known = left_out(names, ignored, remarks);
  std::vector<std::size_t> places;
  std::vector<std::string> missing;
  for (const auto& column : columns) {
    const auto found = std::ranges::find(names, column.name);
    if (found == names.end()) {
      missing.push_back(column.name);
      continue;
    }
    places.push_back(static_cast<std::size_t>(found - names.begin()));
    if (std::find(found + 1, names.end(), column.name) != names.end())
      throw data_error(fmt::format("has the column {} twice", column.name), table.origin(), "leave one out");
    known[places.back()] = true;
  }
  std::vector<std::string> additional;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!known[i]) additional.push_back(names[i]);
  const bool headless = table.header().empty();
  if (!missing.empty())
    throw data_error(
        fmt::format("lacks the column{} {} of the training{}", missing.size() == 1 ? "" : "s",
                    listed(missing),
                    additional.empty() ? "" : fmt::format(", and has {}", listed(additional))),
        table.origin(),
        headless ? "begin it with a row of the columns' names" : "give the columns of the training's table");
  if (!additional.empty())
    throw data_error(fmt::format("has the column{} {}, which the training did not have as input",
                                 additional.size() == 1 ? "" : "s", listed(additional)),
                     table.origin(),
                     fmt::format("leave out what is no input with --ignore {}", listed(additional, ",")));
  return places;
}

[[noreturn]] void refuse_cell(const TableText& table, std::int64_t row, const TrainedColumn& column,
                              std::string_view cell) {
  const std::string where =
      fmt::format("has {} in line {}, column {}", printable(cell, 40), table.line(row), column.name);
  double number = 0;
  if (column.numeric && read_number(cell, number))
    throw data_error(where + ", more than a float32 holds once it is scaled as in the training",
                     table.origin(), "check the number, or leave the row out");
  if (column.numeric)
    throw data_error(where + ", where the training had numbers", table.origin(),
                     "write numbers like -1234.5 and leave gaps empty");
  if (column.dates)
    throw data_error(where + ", where the training had dates", table.origin(),
                     "write dates like 2024-12-31 or 2024-12-31T18:30, and leave gaps empty");
  throw data_error(where + ", a label that the training did not have", table.origin(),
                   fmt::format("use one of {}, or leave the cell empty",
                               printable(fmt::format("{}", fmt::join(column.labels, ", ")), 300)));
}

/// Whether a cell with a value is of the kind that the training had. `number`: its number, or its day.
bool read_cell(const TrainedColumn& column, std::string_view cell, double& number) {
  if (column.numeric) return read_number(cell, number);
  if (!column.dates)
    return column.labels.empty() || std::ranges::find(column.labels, cell) != column.labels.end();
  const auto date = read_date(cell);
  if (date) number = date->days;
  return date.has_value();
}

/// The inputs that a column becomes, of one cell, computed as staging did.
void fill_inputs(const std::vector<InputColumn>& inputs, const TrainedColumn& column, bool gap, double number,
                 std::string_view cell, float* row) {
  for (const std::size_t i : column.inputs) {
    const InputColumn& input = inputs[i];
    if (input.marks_gaps) {
      row[i] = gap ? 1.0F : 0.0F;
      continue;
    }
    const double value = gap                    ? input.filled_with
                         : !input.label.empty() ? static_cast<double>(cell == input.label)
                         : !input.part.empty()  ? date_part(input.part, number)
                                                : number;
    row[i] = static_cast<float>((value - input.shift) / input.scale);
  }
}

}  // namespace

std::shared_ptr<const Column> read_new_table(const DatasetInfo& trained, const UnlabelledOptions& options,
                                             std::vector<std::string>& remarks) {
  const auto& inputs = trained.columns;
  const TableText table = read_table(options, trained.na_values);
  const auto columns = columns_behind(inputs);
  const auto places =
      places_of(columns, table, {.by_training = trained.ignored_columns, .by_user = options.ignore}, remarks);
  if (table.rows() == 0) throw data_error("holds no rows", table.origin(), "give at least one");
  std::vector<float> rows(static_cast<std::size_t>(table.rows()) * inputs.size());
  for (std::size_t k = 0; k < columns.size(); ++k) {
    const TrainedColumn& column = columns[k];
    std::int64_t gaps = 0;
    for (std::int64_t row = 0; row < table.rows(); ++row) {
      const std::string_view cell = table.cell(row, places[k]);
      const bool gap = is_missing(cell);
      double number = 0;
      if (!gap && !read_cell(column, cell, number)) refuse_cell(table, row, column, cell);
      gaps += gap ? 1 : 0;
      float* const place = rows.data() + static_cast<std::size_t>(row) * inputs.size();
      fill_inputs(inputs, column, gap, number, cell, place);
      if (std::ranges::any_of(column.inputs, [place](std::size_t i) { return !std::isfinite(place[i]); }))
        refuse_cell(table, row, column, cell);
    }
    if (gaps > 0 && !column.had_gaps)
      remarks.push_back(
          fmt::format("{} of {} rows have no value in the column {}, which had no gaps in the training: its "
                      "mean stands there",
                      gaps, table.rows(), column.name));
  }
  return column_from(rows, {static_cast<std::int64_t>(inputs.size())});
}

}  // namespace dtrain::data
