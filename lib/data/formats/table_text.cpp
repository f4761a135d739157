#include "data/formats/table_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "data/formats/dates.hpp"
#include "data/text/unicode.hpp"

namespace dtrain::data {
namespace {

bool read_any_number(std::string_view cell, double& number) {
  if (cell.starts_with('+')) cell.remove_prefix(1);
  const auto read = parse_number<double>(cell);
  number = read.value_or(number);
  return read.has_value();
}

}  // namespace

bool is_missing(std::string_view cell) {
  constexpr std::array<std::string_view, 7> kGaps = {"?", "NA", "N/A", "n/a", "#N/A", "NULL", "null"};
  double number = 0;
  return cell.empty() || std::ranges::find(kGaps, cell) != kGaps.end() ||
         (read_any_number(cell, number) && std::isnan(number));
}

bool read_number(std::string_view cell, double& number) {
  return read_any_number(cell, number) && std::isfinite(number);
}

std::vector<std::string> parse_na_values(const std::string& text) {
  std::vector<std::string> values;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');)
    if (!word.empty()) values.push_back(word);
  return values;
}

TableText::TableText(std::string content, std::string origin, std::size_t least_width,
                     const std::vector<std::string>& gaps)
    : content_(std::make_unique<const std::string>(with_line_ends(std::move(content)))),
      origin_(std::move(origin)) {
  if (content_->find('\0') != std::string::npos)
    throw data_error("holds binary data, not a table", origin_, "give text of comma-separated values");
  require_utf8(*content_, origin_);
  reader_ = std::make_unique<CsvReader>(*content_, origin_, separator_of(*content_));
  std::vector<std::string_view> row;
  while (reader_->next(row)) {
    if (lines_.empty()) width_ = row.size();
    if (row.size() != width_)
      throw data_error(fmt::format("has {} cells in line {}, but {} in line {}", row.size(), reader_->line(),
                                   width_, lines_.front()),
                       origin_, "give every row the same number of cells");
    cells_.insert(cells_.end(), row.begin(), row.end());
    lines_.push_back(reader_->line());
  }
  if (lines_.empty()) throw data_error("holds no rows", origin_, "give at least ten");
  if (width_ < least_width)
    throw data_error("has one column only", origin_, "give inputs and a target, separated by commas");
  const auto empty_gaps = [&] {
    for (auto& cell : cells_)
      if (!gaps.empty() && std::ranges::find(gaps, cell) != gaps.end()) cell = {};
  };
  if (!first_row_is_header()) {
    empty_gaps();
    return;
  }
  header_.assign(cells_.begin(), cells_.begin() + static_cast<std::ptrdiff_t>(width_));
  cells_.erase(cells_.begin(), cells_.begin() + static_cast<std::ptrdiff_t>(width_));
  lines_.erase(lines_.begin());
  empty_gaps();
}

bool TableText::first_row_is_header() const {
  double number = 0;
  bool words = false;
  for (std::size_t column = 0; column < width_; ++column) {
    const std::string_view first = cells_[column];
    if (first.empty()) continue;
    words = true;
    if (is_missing(first) || read_number(first, number) || read_date(first)) return false;
    for (std::int64_t row = 1; row < rows(); ++row)
      if (cell(row, column) == first) return false;
  }
  return words;
}

}  // namespace dtrain::data
