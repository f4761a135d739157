#include "core/whole_number.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace dtrain {
namespace {

std::optional<std::int64_t> read(const std::string& text) {
  return whole_number(nlohmann::json::parse(text));
}

TEST(WholeNumberTest, ReadsWhatFitsSixtyFourBits) {
  EXPECT_EQ(read("0"), 0);
  EXPECT_EQ(read("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
}

TEST(WholeNumberTest, NothingElseIsOne) {
  for (const char* text : {"9223372036854775808", "18446744073709551616", "-9223372036854775809", "1.0",
                           "1.5", "1e37", "-1e300", "true", "null", "\"1\"", "[1]", "{}"})
    EXPECT_EQ(read(text), std::nullopt) << text;
}

TEST(WholeNumberTest, OneThatIsNeededIsAskedFor) {
  EXPECT_EQ(required_whole_number(nlohmann::json(5)), 5);
  EXPECT_THROW(required_whole_number(nlohmann::json(5.5)), Error);
}

}  // namespace
}  // namespace dtrain
