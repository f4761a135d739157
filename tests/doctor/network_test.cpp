#include "doctor/network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrain::doctor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::vector<std::string> kHosts = {"node0", "node1", "node2", "node3"};

auto is(Level level, const std::string& text, const std::string& remedy) {
  return AllOf(Field(&Finding::level, level), Field(&Finding::text, HasSubstr(text)),
               Field(&Finding::remedy, HasSubstr(remedy)));
}

/// Every direction of every pair of `nodes` at 100 MB/s, but where `node` is an end of it.
std::vector<comm::LinkSpeed> links_of(int nodes, int node, double in_and_out) {
  std::vector<comm::LinkSpeed> links;
  for (int from = 0; from < nodes; ++from) {
    for (int to = 0; to < nodes; ++to) {
      if (from != to) links.push_back({from, to, from == node || to == node ? in_and_out : 100e6});
    }
  }
  return links;
}

TEST(ClocksTest, NamesTheClockThatIsOff) {
  EXPECT_THAT(
      judge_clocks({{0, 0}, {0.001, 1e-4}, {2.5, 1e-4}, {0.002, 1e-4}}, kHosts),
      ElementsAre(is(Level::problem, "the clock of node2 is 2.50 s ahead of that of node1", "chronyc")));
  EXPECT_THAT(judge_clocks({{0, 0}, {-0.3, 1e-4}}, kHosts),
              ElementsAre(is(Level::note, "node0 is 300.0 ms ahead of that of node1", "chronyd")));
}

TEST(ClocksTest, NamesRankZerosWhereThatIsOff) {
  EXPECT_THAT(judge_clocks({{0, 0}, {-60, 1e-4}, {-60.001, 1e-4}}, kHosts),
              ElementsAre(is(Level::problem, "node0 is 60.00 s ahead of that of node1", "")));
}

TEST(ClocksTest, DoesNotTakeASlowAnswerForAWrongClock) {
  EXPECT_THAT(judge_clocks({{0, 0}, {0.2, 0.2}}, kHosts),
              ElementsAre(is(Level::good, "at most 200.0 ms", "")));
  EXPECT_THAT(judge_clocks({{0, 0}, {0.0004, 0.0001}}, kHosts), ElementsAre(is(Level::good, "0.4 ms", "")));
}

TEST(LinksTest, NamesBothEndsOfASlowLink) {
  auto links = links_of(4, -1, 0);
  links[1].bytes_per_s = 20e6;  // 0 -> 2
  EXPECT_THAT(
      judge_links(links, kHosts),
      ElementsAre(is(Level::problem, "node0 -> node2 20 MB/s, the median is 100 MB/s", "between them")));
}

TEST(LinksTest, NamesTheNodeAllOfWhoseLinksAreSlow) {
  EXPECT_THAT(
      judge_links(links_of(3, 1, 10e6), kHosts),
      ElementsAre(is(Level::problem, "node0 -> node1 10 MB/s, node1 -> node0", "speed (ethtool) of node1")));
  EXPECT_THAT(judge_links(links_of(4, 3, 10e6), kHosts),
              ElementsAre(is(Level::problem, "and 2 more", "of node3")));
}

TEST(LinksTest, AcceptsHalfOfTheMedian) {
  EXPECT_THAT(slow_links(links_of(4, 2, 55e6)), IsEmpty());
  EXPECT_THAT(slow_links(links_of(4, 2, 45e6)), SizeIs(6));
  EXPECT_THAT(judge_links(links_of(4, 2, 55e6), kHosts),
              ElementsAre(is(Level::good, "100 MB/s in the median, 55 MB/s at least", "")));
}

}  // namespace
}  // namespace dtrain::doctor
