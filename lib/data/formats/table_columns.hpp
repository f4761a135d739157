#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/formats/table_text.hpp"
#include "data/import/stage_report.hpp"
#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// A column of all files of a table: its name, and which values it has.
struct TableColumn {
  std::string name;  ///< From the header, or its number counted from 0.
  std::size_t index = 0;
  bool numeric = true;  ///< All values that are there are numbers.
  bool dates = false;   ///< All are dates.
  bool times = false;   ///< Of dates: some have a time.
  double least = 0;     ///< Of numbers; of dates the days, see Moment.
  double most = 0;
  bool gaps = false;         ///< Some are missing.
  bool empty = true;         ///< All are.
  std::int64_t missing = 0;  ///< Cells without a value.
  std::int64_t values = 0;   ///< Cells with one.
};

/// The columns of `files`, whose rows count as one table. Throws data_error when the files have other columns
/// than one another, and for two columns of one name.
std::vector<TableColumn> columns_of(std::span<const TableText> files);

std::vector<std::string> names_of(const std::vector<TableColumn>& columns);

/// The column that a user means: by its name, or else by its number from 0. `option` names the option in the
/// error (exit code 2) that lists the columns there are.
const TableColumn& find_column(const std::vector<TableColumn>& columns, const std::string& name,
                               const std::string& option);

/// The different values of a column: numbers by their size (`2` and `2.0` are one), labels by their bytes.
class ColumnValues {
 public:
  ColumnValues(std::span<const TableText> files, const TableColumn& column);
  const std::vector<std::string>& names() const { return names_; }  ///< As they were written.
  /// The position of a cell that is not missing among them.
  std::int64_t position_of(std::string_view cell) const;

 private:
  bool numeric_;
  std::vector<std::string> names_;
  std::vector<double> numbers_;  // of a numeric column
};

/// Throws data_error, naming cell and line, for a column that is none of numbers though most of its many
/// values are, or are meant as numbers (decimal commas, units, inf): each would become an input of its own.
void require_plain_numbers(std::span<const TableText> files, const TableColumn& column);

/// Throws data_error, naming cell and line, for a column most of whose many values are meant as dates, but
/// not all of them can be read.
void require_plain_dates(std::span<const TableText> files, const TableColumn& column);

/// Throws data_error, naming number, line and column, for a number that float32 does not hold.
void require_small_numbers(std::span<const TableText> files, const TableColumn& column);

/// Whether a column of numbers has whole ones alone, and no more than `most` different.
bool has_few_whole_numbers(std::span<const TableText> files, const TableColumn& column, std::size_t most);

/// For people: what a column has. Labels of text may be many.
ColumnReport report_of(std::span<const TableText> files, const TableColumn& column);

/// Which inputs a column becomes: a number itself; of dates their date_parts(); of two labels one input that
/// is 1 for the second; of more labels one input each, 1 for its own; and where there are gaps one more that
/// is 1 for a gap. Throws data_error for more labels than 100: an identifier or free text.
std::vector<InputColumn> inputs_of(std::span<const TableText> files, const TableColumn& column);

/// The value of one input in a row of a file; NaN in a gap that is yet to be filled.
double input_value(const InputColumn& input, const TableColumn& column, std::string_view cell);

}  // namespace dtrain::data
