#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::app {

/// A table whose columns are as wide as their widest cell: text to the left, numbers to the right.
class TextTable {
 public:
  enum class Align { left, right };
  struct Heading {
    std::string text;
    Align align = Align::right;
    std::size_t least_width = 0;  ///< So that the columns of a second table lie below those of the first.
  };
  enum class Headings { shown, hidden };

  explicit TextTable(std::vector<Heading> headings);

  /// One cell per heading.
  void row(std::vector<std::string> cells);

  /// Prints headings and rows, two spaces in front of each line and between columns.
  void print(std::ostream& out, Headings headings = Headings::shown) const;

 private:
  std::vector<Heading> headings_;
  std::vector<std::vector<std::string>> rows_;
};

inline constexpr std::size_t kReportWidth = 100;  ///< No line of a report is wider.

// How numbers look in a report. NaN, for "no such notion", is `-`.
std::string fixed_text(double value, int decimals);  ///< `0.4523`
std::string grouped_text(double value);              ///< `54,000`
std::string speed_text(double per_s);                ///< `43,760`, and `21.3` below a hundred
std::string si_text(double value);                   ///< `58.4 G`, to be followed by a unit
std::string bytes_text(double bytes);                ///< `1.2 GiB`
std::string percent_text(double share);              ///< `26.0 %` for 0.26
std::string seconds_text(double seconds);            ///< `1.23`, fewer decimals where there are more digits
std::string short_text(double value);                ///< Four significant digits: `0.001`, `1.25e-05`

/// Cut to `width` characters, with `...` at the end when it was longer.
std::string clipped(std::string_view text, std::size_t width);

/// In lines of at most `width` characters, of which all but the first begin with `indent` blanks; cut where
/// more than four would be needed.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

/// Characters of UTF-8 text: bytes that do not continue one.
std::size_t text_width(std::string_view text);

}  // namespace dtrain::app
