#include "models/exported/size_expression.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"

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

}  // namespace
}  // namespace dtrain::models::exported
