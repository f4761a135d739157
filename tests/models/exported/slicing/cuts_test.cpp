#include "models/exported/slicing/cuts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace dtrain::models::exported {
namespace {

using testing::ElementsAre;

Cuts cuts_of(const std::string& name) {
  const PlannedProgram planned(std::string(std::getenv("DTRAIN_PROGRAMS")) + "/" + name + ".pt2",
                               PlannedProgram::Dropout::off);
  return find_cuts(planned, 2);
}

/// `parts.plain_` and the like, in their order.
template <class Cut>
std::vector<std::string> names_of(const std::vector<Cut>& cuts) {
  std::vector<std::string> names;
  for (const Cut& cut : cuts) names.push_back(cut.name);
  return names;
}

TEST(CutsTest, AnAttentionIsCutWhereItComputesWithEachHeadAlone) {
  const auto cuts = cuts_of("mixed_heads");
  EXPECT_THAT(names_of(cuts.attentions),
              ElementsAre("parts.plain_", "parts.grouped_", "parts.weights_of_each_", "parts.seen_by_each_",
                          "parts.chained_.one"));
  EXPECT_EQ(cuts.attentions.at(0).groups, 4);
  EXPECT_EQ(cuts.attentions.at(1).groups, 2);
  EXPECT_EQ(cuts.attentions.at(1).heads, 4);
}

TEST(CutsTest, WhatIsGivenByHeadIsTakenByHead) {
  const auto cuts = cuts_of("mixed_heads");
  EXPECT_TRUE(cuts.attentions.at(0).by_head.empty());
  for (const std::size_t i : {2, 3}) {
    ASSERT_EQ(cuts.attentions.at(i).by_head.size(), 1U) << cuts.attentions.at(i).name;
    EXPECT_EQ(cuts.attentions.at(i).beside.size(), i == 2 ? 1U : 0U) << "a mask has no gradient";
  }
}

TEST(CutsTest, APairIsCutWhereItComputesWithEachFeatureAlone) {
  const auto cuts = cuts_of("mixed_features");
  EXPECT_THAT(names_of(cuts.pairs), ElementsAre("parts.gated_.gate, parts.gated_.up and parts.gated_.down",
                                                "parts.halves_.up and parts.halves_.down",
                                                "parts.one_half_.up and parts.one_half_.down"));
  EXPECT_EQ(cuts.pairs.at(1).firsts.at(0).parts, 2);
}

TEST(CutsTest, WhatSeveralLayersAreGivenEntersOnceWhereNothingElseUsesIt) {
  const auto cuts = cuts_of("mixed_heads");
  for (const auto& attention : cuts.attentions) {
    const auto first = attention.projections.front().place;
    for (const auto& projection : attention.projections) EXPECT_EQ(std::min(first, projection.place), first);
  }
  EXPECT_EQ(cuts.shared_inputs.size(), 4U) << "the last one's has other users";
}

}  // namespace
}  // namespace dtrain::models::exported
