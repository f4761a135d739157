#include "models/exported/size_expression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "core/printable.hpp"

namespace dtrain::models::exported {
namespace {

constexpr int kDeepest = 32;
constexpr double kLargestWhole = 9007199254740992.0;  // 2^53: a double holds every whole number up to it

Error not_understood(const std::string& what) {
  return Error(fmt::format("has a size that dtrain cannot compute: {}", printable(what, 100)),
               {.advice = "let only the number of samples be dynamic in torch.export.export"});
}

}  // namespace

double floor_mod(double a, double b) { return a - std::floor(a / b) * b; }

std::optional<double> function_of_sizes(std::string_view name, std::span<const double> a) {
  const auto count = a.size();
  double result = 0;
  if (name == "Add") {
    for (const double x : a) result += x;
    return result;
  }
  if (name == "Mul") {
    result = 1;
    for (const double x : a) result *= x;
    return result;
  }
  if (name == "Max" && count > 0) return *std::max_element(a.begin(), a.end());
  if (name == "Min" && count > 0) return *std::min_element(a.begin(), a.end());
  if (count == 1) {
    if (name == "Integer" || name == "ToFloat" || name == "Identity") return a[0];
    if (name == "TruncToInt") return std::trunc(a[0]);
    if (name == "FloorToInt") return std::floor(a[0]);
    if (name == "CeilToInt") return std::ceil(a[0]);
    if (name == "RoundToInt") return std::nearbyint(a[0]);
    if (name == "OpaqueUnaryFn_sqrt") return std::sqrt(a[0]);
  }
  if (count == 2) {
    if (name == "Pow" || name == "PowByNatural" || name == "FloatPow") return std::pow(a[0], a[1]);
    if (a[1] != 0) {
      if (name == "FloorDiv") return std::floor(a[0] / a[1]);
      if (name == "CeilDiv") return std::ceil(a[0] / a[1]);
      if (name == "CleanDiv" || name == "IntTrueDiv" || name == "FloatTrueDiv" || name == "Rational")
        return a[0] / a[1];
      if (name == "Mod" || name == "PythonMod") return floor_mod(a[0], a[1]);
    }
  }
  if (count == 3 && name == "ModularIndexing" && a[1] != 0 && a[2] != 0)
    return floor_mod(std::floor(a[0] / a[1]), a[2]);
  return std::nullopt;
}

struct SizeExpression::Term {
  std::string name;  // of a function or symbol; empty: a number
  double number = 0;
  bool is_symbol = false;
  std::vector<Tree> arguments;
};

/// Reads `Name(arguments)`; keyword arguments, which say what SymPy may assume, are passed over.
class SizeExpression::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Tree whole() {
    auto tree = expression(0);
    if (!rest().empty()) throw not_understood(std::string(text_));
    return tree;
  }

 private:
  std::string_view rest() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return text_.substr(at_);
  }

  bool take(char letter) {
    if (!rest().starts_with(letter)) return false;
    ++at_;
    return true;
  }

  std::string word() {
    const auto begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted() {
    if (!take('\'')) throw not_understood(std::string(text_));
    const auto end = text_.find('\'', at_);
    if (end == std::string_view::npos) throw not_understood(std::string(text_));
    std::string inside(text_.substr(at_, end - at_));
    at_ = end + 1;
    return inside;
  }

  Tree number() {
    double value = 0;
    const auto left = rest();
    const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), value);
    if (error != std::errc() || !(std::abs(value) <= kLargestWhole)) throw not_understood(std::string(text_));
    at_ += static_cast<std::size_t>(end - left.data());
    auto term = std::make_shared<Term>();
    term->number = value;
    return term;
  }

  void skip_keywords() {
    while (take(',')) {
      rest();
      word();
      if (!take('=')) throw not_understood(std::string(text_));
      rest();
      if (word().empty()) number();
    }
  }

  Tree expression(int depth) {
    if (depth > kDeepest) throw not_understood(std::string(text_));
    const auto left = rest();
    if (left.empty()) throw not_understood(std::string(text_));
    if (std::isdigit(static_cast<unsigned char>(left[0])) != 0 || left[0] == '-') return number();
    auto term = std::make_shared<Term>();
    term->name = word();
    if (term->name.empty() || !take('(')) throw not_understood(std::string(text_));
    if (term->name == "Symbol" || term->name == "Dummy") {
      rest();
      term->name = quoted();
      term->is_symbol = true;
      skip_keywords();
    } else if (term->name == "Float") {
      rest();
      const std::string digits = quoted();
      term->name.clear();
      term->number = std::strtod(digits.c_str(), nullptr);
      skip_keywords();
    } else if (!rest().starts_with(')')) {
      do {
        term->arguments.push_back(expression(depth + 1));
      } while (take(','));
    }
    if (!take(')')) throw not_understood(std::string(text_));
    return term;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

SizeExpression::SizeExpression(std::int64_t number) {
  auto term = std::make_shared<Term>();
  term->number = static_cast<double>(number);
  tree_ = std::move(term);
}

SizeExpression SizeExpression::parse(std::string_view text) {
  if (text.size() > 10'000) throw not_understood(std::string(text));
  return SizeExpression(Parser(text).whole());
}

double SizeExpression::value(const Term& term, const Symbols& symbols) {
  if (term.is_symbol) {
    const auto place = symbols.find(term.name);
    if (place == symbols.end()) throw not_understood("the symbol " + term.name + " depends on values");
    return static_cast<double>(place->second);
  }
  if (term.name.empty()) return term.number;
  std::vector<double> a;
  a.reserve(term.arguments.size());
  for (const auto& argument : term.arguments) a.push_back(value(*argument, symbols));
  const auto found = function_of_sizes(term.name, a);
  if (!found) throw not_understood(fmt::format("{} of {} values", term.name, a.size()));
  return *found;
}

std::int64_t SizeExpression::evaluate(const Symbols& symbols) const {
  const double found = value(*tree_, symbols);
  if (!(std::abs(found) <= kLargestWhole) || std::nearbyint(found) != found)
    throw not_understood(fmt::format("it would be {}", found));
  return static_cast<std::int64_t>(found);
}

double SizeExpression::evaluate_real(const Symbols& symbols) const { return value(*tree_, symbols); }

std::optional<std::int64_t> SizeExpression::constant() const {
  if (!symbols().empty()) return std::nullopt;
  return evaluate({});
}

std::optional<std::string> SizeExpression::symbol() const {
  return tree_->is_symbol ? std::optional(tree_->name) : std::nullopt;
}

void SizeExpression::collect(const Term& term, std::set<std::string>& found) {
  if (term.is_symbol) found.insert(term.name);
  for (const auto& argument : term.arguments) collect(*argument, found);
}

bool SizeExpression::alike(const Term& one, const Term& other) {
  return one.name == other.name && one.number == other.number && one.is_symbol == other.is_symbol &&
         std::ranges::equal(one.arguments, other.arguments,
                            [](const Tree& a, const Tree& b) { return alike(*a, *b); });
}

std::set<std::string> SizeExpression::symbols() const {
  std::set<std::string> found;
  collect(*tree_, found);
  return found;
}

}  // namespace dtrain::models::exported
