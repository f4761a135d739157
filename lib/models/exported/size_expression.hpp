#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace dtrain::models::exported {

/// Values of the symbols that sizes are made of, such as the number of samples.
using Symbols = std::map<std::string, std::int64_t>;

/// The remainder as Python has it: of the sign of `b`.
double floor_mod(double a, double b);

/// A function of SymPy's or PyTorch's of sizes, by its name, such as FloorDiv; nothing where dtrain does not
/// know it for so many values, and where it would divide by 0.
std::optional<double> function_of_sizes(std::string_view name, std::span<const double> values);

/// A size that may depend on the inputs' sizes, as torch.export writes it: SymPy's `srepr`, for example
/// `Mul(Integer(2), Symbol('s77', positive=True, integer=True))`.
class SizeExpression {
 public:
  SizeExpression(std::int64_t number);  // NOLINT(google-explicit-constructor): a number is one

  /// Throws Error where the text is nothing of the kind, or uses a function that dtrain does not know.
  static SizeExpression parse(std::string_view text);

  /// Throws Error where a symbol has no value, or the result is no whole number.
  std::int64_t evaluate(const Symbols& symbols) const;
  /// The same for what need not be whole.
  double evaluate_real(const Symbols& symbols) const;

  std::optional<std::int64_t> constant() const;  ///< Where it is a number.
  std::optional<std::string> symbol() const;     ///< Where it is one symbol alone.
  std::set<std::string> symbols() const;

  /// Whether both are written alike; two that are always equal may not be.
  bool operator==(const SizeExpression& other) const { return alike(*tree_, *other.tree_); }

 private:
  struct Term;
  class Parser;
  using Tree = std::shared_ptr<const Term>;
  explicit SizeExpression(Tree tree) : tree_(std::move(tree)) {}
  static double value(const Term& term, const Symbols& symbols);
  static void collect(const Term& term, std::set<std::string>& found);
  static bool alike(const Term& one, const Term& other);
  Tree tree_;
};

}  // namespace dtrain::models::exported
