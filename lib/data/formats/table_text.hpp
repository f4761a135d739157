#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/csv.hpp"

namespace dtrain::data {

/// One CSV file taken apart into cells, as text. Cells point into the file's content, which it keeps.
class TableText {
 public:
  /// A first row of words, none of which occurs again in its column, is a header; some of its cells may be
  /// empty. Throws data_error naming file and line for a row of another length than the first, and for fewer
  /// than `least_width` cells in a row.
  /// `gaps`: cells that count as empty.
  TableText(std::string content, std::string origin, std::size_t least_width = 2,
            const std::vector<std::string>& gaps = {});

  const std::string& origin() const { return origin_; }
  const std::vector<std::string>& header() const { return header_; }  ///< Empty without one.
  std::size_t width() const { return width_; }
  std::int64_t rows() const { return static_cast<std::int64_t>(lines_.size()); }
  std::string_view cell(std::int64_t row, std::size_t column) const {
    return cells_[static_cast<std::size_t>(row) * width_ + column];
  }
  std::int64_t line(std::int64_t row) const { return lines_[static_cast<std::size_t>(row)]; }

 private:
  bool first_row_is_header() const;

  std::unique_ptr<const std::string> content_;  // apart, so that a move leaves the cells where they are
  std::unique_ptr<CsvReader> reader_;           // owns cells whose quotes were undone
  std::string origin_;
  std::vector<std::string> header_;
  std::size_t width_ = 0;
  std::vector<std::string_view> cells_;  // [rows, width]
  std::vector<std::int64_t> lines_;      // of each row
};

/// `?`, `NA`, `NULL` and their like, nothing, or a number that is none (nan).
bool is_missing(std::string_view cell);

/// The cells that `--na-values` names, as `TEXT,TEXT`.
std::vector<std::string> parse_na_values(const std::string& text);

/// The whole cell as a finite number. False where it is none.
bool read_number(std::string_view cell, double& number);

}  // namespace dtrain::data
