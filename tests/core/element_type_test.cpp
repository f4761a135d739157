#include "core/element_type.hpp"

#include <gtest/gtest.h>

#include <set>

namespace dtrain {
namespace {

TEST(ElementTypeTest, TheTableIsInTheOrderOfTheTypes) {
  for (std::size_t i = 0; i < kElementTypes.size(); ++i)
    EXPECT_EQ(static_cast<std::size_t>(kElementTypes[i].type), i) << kElementTypes[i].name;
  EXPECT_EQ(kElementTypes.back().type, ElementType::other);
}

TEST(ElementTypeTest, EachFormatNamesATypeOnceAndItIsFoundByThatName) {
  for (const auto format : {&ElementFacts::name, &ElementFacts::safetensors, &ElementFacts::npy}) {
    std::set<std::string_view> names;
    for (const ElementFacts& facts : kElementTypes) {
      if ((facts.*format).empty()) continue;
      EXPECT_TRUE(names.insert(facts.*format).second) << facts.*format;
      EXPECT_EQ(find_element_type(format, facts.*format), &facts);
    }
    EXPECT_EQ(find_element_type(format, ""), nullptr);
    EXPECT_EQ(find_element_type(format, "float12"), nullptr);
  }
}

TEST(ElementTypeTest, AnNpyNameEndsInTheBytesOfAnElement) {
  for (const ElementFacts& facts : kElementTypes) {
    if (!facts.npy.empty()) {
      EXPECT_EQ(static_cast<std::size_t>(facts.npy.back() - '0'), facts.bytes) << facts.name;
    }
  }
}

}  // namespace
}  // namespace dtrain
