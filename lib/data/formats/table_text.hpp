#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/formats/csv.hpp"

namespace dtrain::data {

/// One CSV file taken apart into cells, as text. It keeps the file's content, and of a cell two bytes: its
/// place in its row, so that tables of many rows have room in memory.
class TableText {
 public:
  /// A first row of words, none of which occurs again in its column, is a header; some of its cells may be
  /// empty. So is one with whole numbers among the words where they count on, such as 0,1,2,target, and occur
  /// no more or stand beside a word above numbers; one that numbers three columns or more from 0; and one
  /// whose numbers are a scale, such as wavelengths: they rise or fall where those of the second row do not
  /// (eight of them, or six beside a word above numbers), or lie by equal steps (three, beside words). Throws
  /// data_error naming file and line for a row of another length than the first, and for fewer than
  /// `least_width` cells in a row. `gaps`: cells that count as empty.
  TableText(std::string content, std::string origin, std::size_t least_width = 2,
            const std::vector<std::string>& gaps = {});

  const std::string& origin() const { return origin_; }
  const std::vector<std::string>& header() const { return header_; }  ///< Empty without one.
  /// The header's, and where it has nothing the column's number from 0.
  std::vector<std::string> column_names() const;
  std::size_t width() const { return width_; }
  std::int64_t rows() const { return static_cast<std::int64_t>(begins_.size()); }
  std::string_view cell(std::int64_t row, std::size_t column) const;
  /// Where a row begins, counted from 1. Counts the lines before it: for messages.
  std::int64_t line(std::int64_t row) const;

 private:
  using Offset = std::uint16_t;  // of a cell behind the beginning of its row, or one of these
  static constexpr Offset kElsewhere = 0xFFFF;
  static constexpr Offset kEmpty = 0xFFFE;

  void add_row(const std::vector<std::string_view>& cells);
  void drop_first_row();
  bool occurs_below(std::size_t column) const;
  bool has_numbers_below(std::size_t column) const;
  std::vector<double> numbers_of(std::int64_t row, const std::vector<std::size_t>& columns) const;
  bool first_row_is_scale(const std::vector<std::size_t>& words,
                          const std::vector<std::size_t>& numbered) const;
  bool first_row_is_header(const std::vector<std::string>& gaps) const;

  std::unique_ptr<const std::string> content_;  // apart, so that a move leaves the cells where they are
  std::unique_ptr<CsvReader> reader_;           // owns cells whose quotes were undone
  std::unordered_map<std::size_t, std::string_view> odd_cells_;  // those, and what is too far for an Offset
  std::string origin_;
  std::vector<std::string> header_;
  std::size_t width_ = 0;
  char separator_ = ',';
  std::vector<Offset> cells_;        // [rows, width]
  std::vector<std::size_t> begins_;  // of each row in the content
};

/// `?`, `NA`, `NULL` and their like, nothing, or a number that is none (nan).
bool is_missing(std::string_view cell);

/// The cells that `--na-values` names, as `TEXT,TEXT`.
std::vector<std::string> parse_na_values(const std::string& text);

/// The columns that `COL,COL` names. A name of `columns` may have commas itself: the longest one counts. What
/// names none is handed out as it is written.
std::vector<std::string> listed_columns(const std::string& text, const std::vector<std::string>& columns);

/// The whole cell as a finite number. False where it is none.
bool read_number(std::string_view cell, double& number);

}  // namespace dtrain::data
