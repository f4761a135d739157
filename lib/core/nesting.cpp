#include "core/nesting.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

/// Counts brackets, commas and dots outside quotes and comments.
class Count {
 public:
  explicit Count(const NestingLimits& limits) : limits_(limits) {}

  /// False: there are too many.
  bool add(char letter) {
    switch (letter) {
      case '[':
      case '{':
        return ++depth_ <= limits_.depth;
      case ']':
      case '}':
        depth_ -= depth_ > 0 ? 1 : 0;
        return true;
      case ',':
        return ++values_ <= limits_.values;
      case '.':
        return ++dots_ <= limits_.dots_of_a_line;
      case '\n':
        dots_ = 0;
        return true;
      default:
        return true;
    }
  }

  std::string problem() const {
    if (values_ > limits_.values) return fmt::format("holds more than {} values", limits_.values);
    const std::size_t levels = depth_ > limits_.depth ? limits_.depth : limits_.dots_of_a_line;
    return fmt::format("is nested in more than {} levels", levels);
  }

 private:
  const NestingLimits& limits_;
  std::size_t depth_ = 0;
  std::size_t values_ = 0;
  std::size_t dots_ = 0;
};

/// Behind the text in quotes that begins at `at`. `lines`: whether it may go over line ends.
std::size_t behind_quotes(std::string_view text, std::size_t at, std::string_view quote, bool escapes,
                          bool lines) {
  for (at += quote.size(); at < text.size(); ++at) {
    if (text.substr(at, quote.size()) == quote) return at + quote.size();
    if (text[at] == '\n' && !lines) return at;
    if (text[at] == '\\' && escapes) ++at;
  }
  return text.size();
}

}  // namespace

std::string refused_json(std::string_view text, const NestingLimits& limits) {
  NestingLimits of_json = limits;
  of_json.dots_of_a_line = text.size();  // those of its numbers
  Count count(of_json);
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      at = behind_quotes(text, at, "\"", true, true);
    } else if (!count.add(text[at++])) {
      return count.problem();
    }
  }
  return {};
}

std::string refused_toml(std::string_view text, const NestingLimits& limits) {
  Count count(limits);
  for (std::size_t at = 0; at < text.size();) {
    const char letter = text[at];
    if (letter == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (letter == '"' || letter == '\'') {
      const std::string three(3, letter);
      const bool lines = text.substr(at, 3) == three;
      at = behind_quotes(text, at, lines ? three : three.substr(0, 1), letter == '"', lines);
    } else if (!count.add(text[at++])) {
      return count.problem();
    }
  }
  return {};
}

}  // namespace dtrain
