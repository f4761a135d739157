#include "data/formats/table_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <sstream>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "data/formats/dates.hpp"
#include "data/text/unicode.hpp"

namespace dtrain::data {
namespace {

bool read_any_number(std::string_view cell, double& number) {
  if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
  const auto read = parse_number<double>(cell);
  number = read.value_or(number);
  return read.has_value();
}

/// Whether each of these numbers is above the one before, or each is below it.
bool rise_or_fall(std::span<const double> numbers) {
  return std::ranges::adjacent_find(numbers, std::greater_equal<>()) == numbers.end() ||
         std::ranges::adjacent_find(numbers, std::less_equal<>()) == numbers.end();
}

/// Whether they do, three or more, by equal steps.
bool are_evenly_spaced(std::span<const double> numbers) {
  if (numbers.size() < 3 || !rise_or_fall(numbers)) return false;
  const double step = numbers[1] - numbers[0];
  for (std::size_t i = 2; i < numbers.size(); ++i)
    if (std::abs(numbers[i] - numbers[i - 1] - step) > 1e-6 * std::abs(step)) return false;
  return true;
}

}  // namespace

bool is_missing(std::string_view cell) {
  constexpr std::array<std::string_view, 7> kGaps = {"?", "NA", "N/A", "n/a", "#N/A", "NULL", "null"};
  if (cell.empty()) return true;
  constexpr std::size_t kLongest = 4;
  if (cell.size() <= kLongest && std::ranges::find(kGaps, cell) != kGaps.end()) return true;
  // Most cells are numbers, which take long to read: those that are none begin with this letter.
  const std::size_t letter = cell.find_first_not_of("+-");
  if (letter == std::string_view::npos || (cell[letter] != 'n' && cell[letter] != 'N')) return false;
  double number = 0;
  return read_any_number(cell, number) && std::isnan(number);
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
  separator_ = separator_of(*content_);
  reader_ = std::make_unique<CsvReader>(*content_, origin_, separator_);
  std::vector<std::string_view> row;
  while (reader_->next(row)) {
    if (begins_.empty()) {
      width_ = row.size();
      const auto most_rows = static_cast<std::size_t>(std::ranges::count(*content_, '\n')) + 1;
      begins_.reserve(most_rows);
      cells_.reserve(std::min(most_rows * width_, content_->size() + 1));  // a cell takes a letter or more
    }
    if (row.size() != width_)
      throw data_error(fmt::format("has {} cells in line {}, but {} in line {}", row.size(), reader_->line(),
                                   width_, line(0)),
                       origin_, "give every row the same number of cells");
    if (!gaps.empty() && !begins_.empty())  // a header keeps its words
      for (auto& cell : row)
        if (std::ranges::find(gaps, cell) != gaps.end()) cell = {};
    add_row(row);
  }
  if (begins_.empty()) throw data_error("holds no rows", origin_, "give at least ten");
  if (width_ < least_width)
    throw data_error("has one column only", origin_, "give inputs and a target, separated by commas");
  if (first_row_is_header(gaps)) {
    drop_first_row();
    return;
  }
  for (std::size_t column = 0; column < width_; ++column)
    if (std::ranges::find(gaps, cell(0, column)) != gaps.end()) cells_[column] = kEmpty;
}

void TableText::add_row(const std::vector<std::string_view>& cells) {
  const auto is_inside = [this](std::string_view cell) {
    return !cell.empty() && std::less_equal<>()(content_->data(), cell.data()) &&
           std::less<>()(cell.data(), content_->data() + content_->size());
  };
  const auto begin = static_cast<std::size_t>(reader_->begin_of_row() - content_->data());
  begins_.push_back(begin);
  for (const std::string_view cell : cells) {
    Offset& place = cells_.emplace_back(kEmpty);
    if (cell.empty()) continue;
    const std::size_t offset =
        is_inside(cell) ? static_cast<std::size_t>(cell.data() - content_->data()) - begin : kElsewhere;
    place = static_cast<Offset>(std::min<std::size_t>(offset, kElsewhere));
    if (place != kEmpty && place != kElsewhere) continue;
    place = kElsewhere;
    odd_cells_.emplace(cells_.size() - 1, cell);
  }
}

std::string_view TableText::cell(std::int64_t row, std::size_t column) const {
  const std::size_t index = static_cast<std::size_t>(row) * width_ + column;
  const Offset place = cells_[index];
  if (place == kEmpty) return {};
  if (place == kElsewhere) return odd_cells_.at(index);
  return cell_at(*content_, begins_[static_cast<std::size_t>(row)] + place, separator_);
}

/// The first row becomes the header.
void TableText::drop_first_row() {
  for (std::size_t column = 0; column < width_; ++column) header_.emplace_back(cell(0, column));
  cells_.erase(cells_.begin(), cells_.begin() + static_cast<std::ptrdiff_t>(width_));
  begins_.erase(begins_.begin());
  std::unordered_map<std::size_t, std::string_view> moved;
  for (const auto& [index, cell] : odd_cells_)
    if (index >= width_) moved.emplace(index - width_, cell);
  odd_cells_ = std::move(moved);
}

std::int64_t TableText::line(std::int64_t row) const {
  const auto end = content_->begin() + static_cast<std::ptrdiff_t>(begins_[static_cast<std::size_t>(row)]);
  return 1 + std::count(content_->begin(), end, '\n');
}

/// Whether a cell of the first row stands in its column once more.
bool TableText::occurs_below(std::size_t column) const {
  const std::string_view first = cell(0, column);
  for (std::int64_t row = 1; row < rows(); ++row)
    if (cell(row, column) == first) return true;
  return false;
}

/// Whether a column has numbers alone below the first row, and some.
bool TableText::has_numbers_below(std::size_t column) const {
  bool found = false;
  double number = 0;
  for (std::int64_t row = 1; row < rows(); ++row) {
    const std::string_view below = cell(row, column);
    if (is_missing(below)) continue;
    if (!read_number(below, number)) return false;
    found = true;
  }
  return found;
}

/// The numbers that these columns of a row have.
std::vector<double> TableText::numbers_of(std::int64_t row, const std::vector<std::size_t>& columns) const {
  std::vector<double> numbers;
  double number = 0;
  for (const std::size_t column : columns)
    if (read_number(cell(row, column), number)) numbers.push_back(number);
  return numbers;
}

/// Whether the numbers of the first row name their columns, as wavelengths and years do. `words`: those of
/// the first row that are no numbers.
bool TableText::first_row_is_scale(const std::vector<std::size_t>& words,
                                   const std::vector<std::size_t>& numbered) const {
  // So many values of a sample do not rise or fall by chance; without words beside them it takes more.
  constexpr std::size_t kFewest = 6;
  constexpr std::size_t kSurely = 8;
  const auto first = numbers_of(0, numbered);
  const auto second = numbers_of(1, numbered);
  const bool even = are_evenly_spaced(first);
  const bool scale = even || (first.size() >= kFewest && rise_or_fall(first));
  const bool all_rows_are_so =  // or may be, as cumulative counts, some of which stay the same
      std::ranges::is_sorted(second) || std::ranges::is_sorted(second, std::greater<>());
  if (!scale) return false;
  if (std::ranges::any_of(words, [this](auto column) { return has_numbers_below(column); }))
    return even || !all_rows_are_so;
  if (first.size() >= kSurely) return !all_rows_are_so || (even && !words.empty());
  return even && !words.empty() && !are_evenly_spaced(second) &&
         std::ranges::none_of(numbered, [this](auto column) { return occurs_below(column); });
}

bool TableText::first_row_is_header(const std::vector<std::string>& gaps) const {
  std::vector<std::size_t> words;
  std::vector<std::size_t> numbered;
  std::vector<double> numbers;
  bool gap = false;
  for (std::size_t column = 0; column < width_; ++column) {
    const std::string_view first = cell(0, column);
    double number = 0;
    if (first.empty()) continue;
    if (is_missing(first) || read_date(first)) return false;
    if (read_number(first, number)) {
      numbered.push_back(column);
      numbers.push_back(number);
    } else if (occurs_below(column)) {
      return false;
    } else if (std::ranges::find(gaps, first) != gaps.end()) {
      gap = true;
    } else {
      words.push_back(column);
    }
  }
  if (numbers.empty()) return gap || !words.empty();
  if (rows() == 1) return false;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != std::floor(numbers[0]) + static_cast<double>(i))
      return first_row_is_scale(words, numbered);
  constexpr std::size_t kFewestNumbered = 3;  // fewer may well be a row of values
  if (words.empty()) return numbers.size() == width_ && width_ >= kFewestNumbered && numbers[0] == 0;
  const bool counted = numbers.size() > 1;
  return (counted && std::ranges::none_of(numbered, [this](auto column) { return occurs_below(column); })) ||
         std::ranges::any_of(words, [this](auto column) { return has_numbers_below(column); });
}

std::vector<std::string> TableText::column_names() const {
  std::vector<std::string> names = header_;
  names.resize(width_);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i].empty()) names[i] = std::to_string(i);
  return names;
}

std::vector<std::string> listed_columns(const std::string& text, const std::vector<std::string>& columns) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto is_column = [&](std::size_t end) {
      return std::ranges::find(columns, text.substr(begin, end - begin)) != columns.end();
    };
    std::size_t end = text.size();
    while (end != std::string::npos && end > begin && !is_column(end)) end = text.rfind(',', end - 1);
    if (end == std::string::npos || end <= begin) end = std::min(text.find(',', begin), text.size());
    if (end > begin) names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace dtrain::data
