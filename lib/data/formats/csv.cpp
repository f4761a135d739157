#include "data/formats/csv.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "data/text/unicode.hpp"

namespace dtrain::data {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view trimmed(std::string_view cell) {
  while (!cell.empty() && (is_blank(cell.front()))) cell.remove_prefix(1);
  while (!cell.empty() && (is_blank(cell.back()) || cell.back() == '\r')) cell.remove_suffix(1);
  return cell;
}

}  // namespace

CsvReader::CsvReader(std::string_view text, std::string origin, char separator)
    : text_(without_byte_order_mark(text)), origin_(std::move(origin)), separator_(separator) {}

bool CsvReader::next(std::vector<std::string_view>& cells) {
  cells.clear();
  for (;;) {  // over empty lines
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    if (at_ >= text_.size()) return false;
    if (!trimmed(text_.substr(at_, end - at_)).empty()) break;
    at_ = end + 1;
    ++line_;
  }
  row_line_ = line_;
  row_at_ = at_;
  for (;;) {
    while (at_ < text_.size() && is_blank(text_[at_]) && text_[at_] != separator_) ++at_;
    const bool quoted = at_ < text_.size() && text_[at_] == '"';
    cells.push_back(quoted ? quoted_cell() : plain_cell());
    if (at_ >= text_.size()) return true;
    if (text_[at_++] == separator_) continue;
    ++line_;  // it was the line's end
    return true;
  }
}

std::string_view CsvReader::plain_cell() {
  const std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n') ++at_;
  return trimmed(text_.substr(begin, at_ - begin));
}

std::string_view CsvReader::quoted_cell() {
  const std::int64_t opened = line_;
  const std::size_t begin = ++at_;
  bool doubled = false;
  for (;; ++at_) {
    if (at_ >= text_.size())
      throw data_error(fmt::format("has a quote in line {} that is never closed", opened), origin_,
                       "close it, or double quotes inside a cell");
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] != '"') continue;
    if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') break;
    doubled = true;
    ++at_;
  }
  std::string_view cell = text_.substr(begin, at_ - begin);
  ++at_;
  const std::size_t end = std::min(text_.find_first_of(std::string{separator_, '\n'}, at_), text_.size());
  if (!trimmed(text_.substr(at_, end - at_)).empty())
    throw data_error(fmt::format("has text behind a closing quote in line {}", line_), origin_,
                     "double quotes inside a cell");
  at_ = end;
  if (!doubled) return cell;
  std::string& text = unquoted_.emplace_back();
  for (std::size_t i = 0; i < cell.size(); ++i) {
    text += cell[i];
    if (cell[i] == '"') ++i;  // its twin
  }
  return text;
}

std::string_view cell_at(std::string_view text, std::size_t at, char separator) {
  const bool quoted = at > 0 && text[at - 1] == '"';  // a cell without quotes follows a separator or a blank
  std::size_t end = at;
  if (quoted) {
    end = text.find('"', at);
  } else {
    while (end < text.size() && text[end] != separator && text[end] != '\n') ++end;
  }
  const std::string_view cell = text.substr(at, end - at);
  return quoted ? cell : trimmed(cell);
}

char separator_of(std::string_view text) {
  char best = ',';
  std::size_t most = 1;
  for (const char separator : {',', ';', '\t'}) {
    std::vector<std::string_view> cells;
    try {
      CsvReader(text, "", separator).next(cells);
    } catch (const Error&) {  // a quote out of place: not with this separator
    }
    if (cells.size() <= most) continue;
    most = cells.size();
    best = separator;
  }
  return best;
}

std::string with_line_ends(std::string text) {
  if (text.find('\n') == std::string::npos) std::ranges::replace(text, '\r', '\n');
  return text;
}

bool looks_like_csv(std::string_view stored) {
  if (stored.find('\0') != std::string_view::npos) return false;
  const std::string text = with_line_ends(std::string(stored));
  const std::string_view start = text;
  const std::size_t last_line = start.rfind('\n');
  CsvReader reader(start.substr(0, last_line), "", separator_of(start));  // npos: a single line, whole
  std::vector<std::string_view> cells;
  std::size_t width = 0;
  try {
    while (reader.next(cells)) {
      if (cells.size() < 2 || (width != 0 && cells.size() != width)) return false;
      width = cells.size();
    }
  } catch (const Error&) {
    return false;
  }
  return width > 0;
}

}  // namespace dtrain::data
