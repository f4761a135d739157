#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::data {

/// Rows of comma-separated values (RFC 4180): cells in double quotes may hold the separator, line ends and
/// doubled quotes. White space around cells without quotes and empty lines are left out.
class CsvReader {
 public:
  /// `text` must outlive the reader; `origin` names it in messages.
  CsvReader(std::string_view text, std::string origin, char separator = ',');

  /// The cells of the next row, valid as long as the reader and the text; false at the end. Throws
  /// data_error, naming the line, for a quote that is never closed or is followed by more text.
  bool next(std::vector<std::string_view>& cells);

  std::int64_t line() const { return row_line_; }  ///< Where the row begins, counted from 1.
  const char* begin_of_row() const { return text_.data() + row_at_; }
  const std::string& origin() const { return origin_; }

 private:
  std::string_view plain_cell();
  std::string_view quoted_cell();

  std::string_view text_;
  std::string origin_;
  char separator_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;      // of at_
  std::int64_t row_line_ = 0;  // of the row handed out last
  std::size_t row_at_ = 0;     // where that begins
  std::deque<std::string> unquoted_;
};

/// The cell that begins at `at` of a text, behind its quote where it has one, as the reader gave it out; it
/// must not hold doubled quotes.
std::string_view cell_at(std::string_view text, std::size_t at, char separator);

/// The one of comma, semicolon and tab that gives the first row most cells; comma where none gives two.
char separator_of(std::string_view text);

/// The text with a line feed at each line's end where it has carriage returns only, as old spreadsheets
/// write.
std::string with_line_ends(std::string text);

/// Whether all rows have the same number of cells, at least two. `start`: the beginning of a file, whose last
/// line may be cut off.
bool looks_like_csv(std::string_view start);

}  // namespace dtrain::data
