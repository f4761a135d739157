#include "report/report_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <utility>

namespace dtrain::app {

TextTable::TextTable(std::vector<Heading> headings) : headings_(std::move(headings)) {}

void TextTable::row(std::vector<std::string> cells) {
  cells.resize(headings_.size());
  rows_.push_back(std::move(cells));
}

void TextTable::print(std::ostream& out, Headings headings) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < headings_.size(); ++c) {
    std::size_t width = std::max(text_width(headings_[c].text), headings_[c].least_width);
    for (const auto& cells : rows_) width = std::max(width, text_width(cells[c]));
    widths.push_back(width);
  }
  const auto print_line = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t c = 0; c < headings_.size(); ++c) {
      const std::string& cell = cell_of(c);
      const std::string padding(widths[c] - text_width(cell), ' ');
      line += "  ";
      line += headings_[c].align == Align::left ? cell + padding : padding + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  };
  if (headings == Headings::shown)
    print_line([&](std::size_t c) -> const std::string& { return headings_[c].text; });
  for (const auto& cells : rows_) {
    print_line([&](std::size_t c) -> const std::string& { return cells[c]; });
  }
}

std::string fixed_text(double value, int decimals) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, decimals);
}

std::string grouped_text(double value) {
  if (std::isnan(value)) return "-";
  const std::string digits = fmt::format("{:.0f}", std::abs(value));
  std::string grouped(std::signbit(value) ? "-" : "");
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped.push_back(',');
    grouped.push_back(digits[i]);
  }
  return grouped;
}

std::string speed_text(double per_s) { return per_s < 100 ? fixed_text(per_s, 1) : grouped_text(per_s); }

std::string si_text(double value) {
  constexpr std::array<const char*, 6> kPrefixes = {"", "k", "M", "G", "T", "P"};
  if (std::isnan(value)) return "-";
  std::size_t i = 0;
  for (; std::abs(value) >= 999.5 && i + 1 < kPrefixes.size(); ++i) value /= 1000;
  return fmt::format("{:.3g} {}", value, kPrefixes[i]);
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (std::isnan(bytes)) return "-";
  std::size_t i = 0;
  for (; bytes >= 999.5 && i + 1 < kUnits.size(); ++i) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, i == 0 || bytes >= 99.95 ? 0 : 1, kUnits[i]);
}

std::string percent_text(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.1f} %", 100 * share);
}

std::string seconds_text(double seconds) {
  const int decimals = seconds < 10 ? 3 : seconds < 100 ? 2 : seconds < 10000 ? 1 : 0;
  return fixed_text(seconds, decimals);
}

std::string short_text(double value) { return std::isnan(value) ? "-" : fmt::format("{:.4g}", value); }

std::string clipped(std::string_view text, std::size_t width) {
  if (text_width(text) <= width) return std::string(text);
  const std::size_t keep = width > 3 ? width - 3 : 0;
  std::size_t end = 0;
  for (std::size_t characters = 0; end < text.size(); ++end) {
    const bool starts_one = (static_cast<unsigned char>(text[end]) & 0xC0U) != 0x80U;
    if (starts_one && characters++ == keep) break;
  }
  return std::string(text.substr(0, end)) + "...";
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  constexpr int kMostLines = 4;
  std::string lines;
  for (int line = 1; line < kMostLines && text_width(text) > width; ++line) {
    // The last blank that leaves a line of `width`: a character has a byte at least.
    std::size_t end = text.rfind(' ', width);
    while (end != std::string_view::npos && text_width(text.substr(0, end)) > width)
      end = end == 0 ? std::string_view::npos : text.rfind(' ', end - 1);
    if (end == std::string_view::npos || text.find_first_not_of(' ') >= end) break;  // one long word
    lines += std::string(text.substr(0, end)) + "\n" + std::string(indent, ' ');
    text.remove_prefix(end + 1);
    if (line == 1) width -= indent;
  }
  return lines + clipped(text, width);
}

std::size_t text_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

}  // namespace dtrain::app
