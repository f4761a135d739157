#include "models/exported/size_condition.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "models/exported/size_expression.hpp"

namespace dtrain::models::exported {
namespace {

constexpr std::size_t kLongestCondition = 2000;  // characters
constexpr int kDeepestCondition = 32;

/// Computes while it reads. What it does not know makes the whole condition unknown.
class ConditionReading {
 public:
  ConditionReading(std::string_view text, const SizeByName& size) : text_(text), size_(size) {}

  std::optional<bool> whole() {
    const double found = either();
    if (!known_ || !rest().empty() || std::isnan(found)) return std::nullopt;
    return found != 0;
  }

 private:
  std::string_view rest() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return text_.substr(at_);
  }

  bool take(std::string_view sign) {
    if (!rest().starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }

  /// A word of letters, which does not go on behind it.
  bool take_word(std::string_view word) {
    const auto left = rest();
    if (!left.starts_with(word) || (left.size() > word.size() && is_of_name(left[word.size()]))) return false;
    at_ += word.size();
    return true;
  }

  static bool is_of_name(char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '.';
  }

  double unknown() {
    known_ = false;
    at_ = text_.size();
    return 0;
  }

  double either() {
    double found = both();
    while (take_word("or")) {
      const double other = both();
      found = found != 0 || other != 0 ? 1 : 0;
    }
    return found;
  }

  double both() {
    double found = negated();
    while (take_word("and")) {
      const double other = negated();
      found = found != 0 && other != 0 ? 1 : 0;
    }
    return found;
  }

  double negated() {
    bool turned = false;
    while (take_word("not")) turned = !turned;
    const double found = comparison();
    return turned ? (found == 0 ? 1 : 0) : found;
  }

  /// `a < b <= c` as Python has it.
  double comparison() {
    double left = sum();
    bool compared = false;
    bool all = true;
    for (;;) {
      const bool equal = take("==");
      const bool other = !equal && take("!=");
      const bool at_most = !equal && !other && take("<=");
      const bool at_least = !equal && !other && !at_most && take(">=");
      const bool below = !equal && !other && !at_most && !at_least && take("<");
      const bool above = !equal && !other && !at_most && !at_least && !below && take(">");
      if (!(equal || other || at_most || at_least || below || above)) break;
      const double right = sum();
      all = all && (equal      ? left == right
                    : other    ? left != right
                    : at_most  ? left <= right
                    : at_least ? left >= right
                    : below    ? left < right
                               : left > right);
      compared = true;
      left = right;
    }
    return compared ? (all ? 1 : 0) : left;
  }

  double sum() {
    double found = product();
    for (;;) {
      if (take("+")) {
        found += product();
      } else if (take("-")) {
        found -= product();
      } else {
        return found;
      }
    }
  }

  double product() {
    double found = signed_power();
    for (;;) {
      if (take("//")) {
        found = std::floor(found / signed_power());
      } else if (take("/")) {
        found /= signed_power();
      } else if (take("%")) {
        found = floor_mod(found, signed_power());
      } else if (!rest().starts_with("**") && take("*")) {
        found *= signed_power();
      } else {
        return found;
      }
    }
  }

  double signed_power() {
    bool negative = false;
    while (take("-")) negative = !negative;
    double found = operand();
    if (take("**")) found = std::pow(found, operand());
    return negative ? -found : found;
  }

  double operand() {
    const auto left = rest();
    if (left.empty() || ++depth_ > kDeepestCondition) return unknown();
    const double found = opened(left);
    --depth_;
    return found;
  }

  double opened(std::string_view left) {
    if (take("(")) {
      const double found = either();
      return take(")") ? found : unknown();
    }
    if (std::isdigit(static_cast<unsigned char>(left[0])) != 0) {
      double number = 0;
      const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), number);
      if (error != std::errc()) return unknown();
      at_ += static_cast<std::size_t>(end - left.data());
      return number;
    }
    if (left.starts_with("L[")) return named(size_of_input(left));
    const auto end = std::ranges::find_if_not(left, is_of_name);
    const auto word = left.substr(0, static_cast<std::size_t>(end - left.begin()));
    if (word.empty()) return unknown();
    at_ += word.size();
    if (word == "True") return 1;
    if (word == "False") return 0;
    if (!take("(")) {
      at_ -= word.size();
      return named(word);
    }
    std::vector<double> arguments;
    if (!take(")")) {
      do {
        arguments.push_back(either());
      } while (take(","));
      if (!take(")")) return unknown();
    }
    return called(word.substr(word.rfind('.') + 1), arguments);
  }

  /// `L['x'].size()[0]`, whole; empty where it is something else.
  static std::string_view size_of_input(std::string_view left) {
    constexpr std::string_view kSize = ".size()[";
    const auto size = left.find(kSize);
    const auto end = size == std::string_view::npos ? size : left.find(']', size + kSize.size());
    return end == std::string_view::npos ? std::string_view() : left.substr(0, end + 1);
  }

  double named(std::string_view name) {
    const auto found = name.empty() ? std::nullopt : size_(name);
    if (!found) return unknown();
    at_ += name.size();
    return *found;
  }

  double called(std::string_view name, const std::vector<double>& a) {
    const auto found = function_of_sizes(in_sympy(name), a);
    if (found) return *found;
    if (a.size() == 1 && name == "abs") return std::abs(a[0]);
    if (a.size() == 1 && name == "Not") return a[0] == 0 ? 1 : 0;
    if (a.size() == 2 && name == "Eq") return a[0] == a[1] ? 1 : 0;
    if (a.size() == 2 && name == "Ne") return a[0] != a[1] ? 1 : 0;
    return unknown();
  }

  /// What SymPy calls a function of Python; other names as they are.
  static std::string_view in_sympy(std::string_view name) {
    constexpr std::array<std::array<std::string_view, 2>, 10> kNames = {{{"max", "Max"},
                                                                         {"min", "Min"},
                                                                         {"floor", "FloorToInt"},
                                                                         {"ceil", "CeilToInt"},
                                                                         {"trunc", "TruncToInt"},
                                                                         {"int", "TruncToInt"},
                                                                         {"sym_float", "ToFloat"},
                                                                         {"float", "ToFloat"},
                                                                         {"sqrt", "OpaqueUnaryFn_sqrt"},
                                                                         {"pow", "Pow"}}};
    const auto found = std::ranges::find(kNames, name, [](const auto& pair) { return pair[0]; });
    return found == kNames.end() ? name : (*found)[1];
  }

  std::string_view text_;
  const SizeByName& size_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool known_ = true;
};

}  // namespace

std::optional<bool> holds(std::string_view condition, const SizeByName& size) {
  if (condition.size() > kLongestCondition) return std::nullopt;
  return ConditionReading(condition, size).whole();
}

}  // namespace dtrain::models::exported
