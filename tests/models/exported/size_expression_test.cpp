#include "models/exported/size_expression.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "models/exported/size_condition.hpp"

namespace dtrain::models::exported {
namespace {

TEST(SizeExpressionTest, ComputesWhatExportWrites) {
  const Symbols symbols = {{"s77", 6}};
  const std::string n = "Symbol('s77', positive=True, integer=True)";
  EXPECT_EQ(SizeExpression::parse(n).evaluate(symbols), 6);
  EXPECT_EQ(SizeExpression::parse("Mul(Integer(4), " + n + ")").evaluate(symbols), 24);
  EXPECT_EQ(SizeExpression::parse("Add(Mul(Integer(-1), " + n + "), Integer(7))").evaluate(symbols), 1);
  EXPECT_EQ(SizeExpression::parse("FloorDiv(" + n + ", Integer(4))").evaluate(symbols), 1);
  EXPECT_EQ(SizeExpression::parse("Mod(" + n + ", Integer(4))").evaluate(symbols), 2);
  EXPECT_EQ(SizeExpression::parse("Max(Integer(1), " + n + ")").evaluate(symbols), 6);
  EXPECT_EQ(SizeExpression::parse("Pow(" + n + ", Integer(2))").evaluate(symbols), 36);
  EXPECT_DOUBLE_EQ(SizeExpression::parse("IntTrueDiv(" + n + ", Integer(4))").evaluate_real(symbols), 1.5);
  EXPECT_DOUBLE_EQ(SizeExpression::parse("Float('0.25', precision=53)").evaluate_real(symbols), 0.25);
  EXPECT_EQ(SizeExpression(5).constant(), 5);
  EXPECT_EQ(SizeExpression::parse(n).symbol(), "s77");
  EXPECT_EQ(SizeExpression::parse("Mul(Integer(4), " + n + ")").symbol(), std::nullopt);
}

TEST(SizeExpressionTest, RefusesWhatIsNoSize) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "Add(";
  for (const std::string& text :
       {std::string(), std::string("Mul("), std::string("Symbol('s"), std::string("1e999"), deep,
        std::string("Integer(1) Integer(2)"), std::string("(1)"), std::string(20'000, '1')}) {
    EXPECT_THROW(SizeExpression::parse(text), Error) << text.substr(0, 50);
  }
  for (const char* text : {"Symbol('u0')", "Unknown(Integer(1))", "FloorDiv(Integer(1), Integer(0))",
                           "IntTrueDiv(Integer(1), Integer(2))", "Pow(Integer(10), Integer(300))"}) {
    EXPECT_THROW(SizeExpression::parse(text).evaluate({}), Error) << text;
  }
}

std::optional<bool> holds_for(const std::string& condition) {
  return holds(condition, [](std::string_view name) -> std::optional<double> {
    if (name == "L['x'].size()[0]" || name == "s77") return 6;
    return name == "L['x'].size()[1]" ? std::optional(9.0) : std::nullopt;
  });
}

TEST(SizeConditionTest, HoldsAsInPython) {
  for (const char* condition :
       {"s77 <= 6", "(L['x'].size()[0] % 2) == 0", "L['x'].size()[0]*L['x'].size()[1] == 54",
        "(((-1) + L['x'].size()[1]) // L['x'].size()[0]) != 2", "-7 // 2 == -4", "2 <= s77 < 7",
        "min(6, 6*(s77 // 4)) == 6", "Eq(Mod(s77, 2), 0)", "Ne(FloorDiv(s77, 4), 2)", "not s77 > 6",
        "s77 == 1 or s77 == 6 and True", "math.trunc(0.6*torch.sym_float(s77)) == 3", "s77**2 - 6*s77 == 0"})
    EXPECT_EQ(holds_for(condition), true) << condition;
  for (const char* condition : {"s77 < 6", "L['x'].size()[1] % 2 == 0", "Eq(Mod(s77, 4), 0)", "2 <= s77 < 6"})
    EXPECT_EQ(holds_for(condition), false) << condition;
}

TEST(SizeConditionTest, IsUnknownWhereTheTextIsSomethingElse) {
  for (const std::string& text :
       {std::string(), std::string("u0 == 1"), std::string("L['y'].size()[0] == 6"), std::string("L['x"),
        std::string("system(1)"), std::string("s77 <= 6)"), std::string("s77 <= "), std::string("(1"),
        std::string(100, '('), std::string(5000, '1'), std::string("an assertion")}) {
    EXPECT_EQ(holds_for(text), std::nullopt) << text.substr(0, 50);
  }
}

}  // namespace
}  // namespace dtrain::models::exported
