#include "topology/fabric.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"

namespace dtrain::topology {
namespace {

/// Three nodes of two, two and one rank; rank 4 is slow in steps 3 to 5, rank 0 always.
Fabric invented() {
  return {.file = "slow.toml",
          .nodes = {{0, 1}, {2, 3}, {4}},
          .where_nodes = {"line 1", "line 2", "line 3"},
          .slow = {{.rank = 4, .factor = 3, .first_step = 3, .last_step = 5, .where = "line 4"},
                   {.rank = 0, .factor = 2, .where = "line 5"}},
          .links = {{.of_all = true, .link = {.latency_s = 0.005, .bytes_per_s = 125e6}, .where = "line 6"},
                    {.of_all = false, .a = 2, .b = 0, .link = {.latency_s = 0.1}, .where = "line 7"}}};
}

/// What validate() says about `fabric` on five ranks.
std::string refusal(const Fabric& fabric) {
  try {
    fabric.validate(5);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_FALSE(error.advice().empty());
    return error.subject() + ": " + error.problem();
  }
  return "";
}

TEST(FabricTest, ARankIsSlowForAWhileOrForGood) {
  const auto fabric = invented();
  EXPECT_EQ(fabric.slowness(4, 2), 1);
  EXPECT_EQ(fabric.slowness(4, 3), 3);
  EXPECT_EQ(fabric.slowness(4, 5), 3);
  EXPECT_EQ(fabric.slowness(4, 6), 1);
  EXPECT_EQ(fabric.slowness(0, 1'000'000), 2);
  EXPECT_EQ(fabric.slowness(1, 1), 1);
}

TEST(FabricTest, TwoNodesHaveTheirOwnLinkOrThatOfAll) {
  const auto fabric = invented();
  EXPECT_EQ(fabric.link(0, 1).seconds(1e9), 0) << "within a node";
  EXPECT_DOUBLE_EQ(fabric.link(1, 2).seconds(125e3), 0.006);
  EXPECT_DOUBLE_EQ(fabric.link(0, 4).seconds(125e3), 0.1) << "in both directions";
  EXPECT_DOUBLE_EQ(fabric.link(4, 1).seconds(125e3), 0.1);
  EXPECT_EQ(fabric.nodes_of({0, 1}), 1);
  EXPECT_EQ(fabric.nodes_of({0, 2, 3, 4}), 3);
  const auto slowest = fabric.slowest_link({0, 2, 4});
  EXPECT_EQ(slowest.latency_s, 0.1);
  EXPECT_EQ(slowest.bytes_per_s, 125e6);
}

TEST(FabricTest, WhatCannotBeMeantIsNamedWithItsLine) {
  EXPECT_EQ(refusal(invented()), "");
  const auto with = [](auto change) {
    auto fabric = invented();
    change(fabric);
    return refusal(fabric);
  };
  EXPECT_EQ(with([](Fabric& f) { f.slow[0].rank = 5; }), "slow.toml, line 4: slow: there is no rank 5");
  EXPECT_EQ(with([](Fabric& f) { f.slow[0].rank = -1; }), "slow.toml, line 4: slow: there is no rank -1");
  EXPECT_NE(with([](Fabric& f) { f.slow[1].factor = 0.5; }).find("line 5: slow: a factor of 0.5"),
            std::string::npos);
  EXPECT_NE(with([](Fabric& f) { f.slow[0].last_step = 2; }).find("no steps 3 to 2"), std::string::npos);
  EXPECT_NE(with([](Fabric& f) { f.nodes[1][0] = 7; }).find("line 2: node: there is no rank 7"),
            std::string::npos);
  EXPECT_NE(with([](Fabric& f) { f.nodes[1][0] = 0; }).find("rank 0 is on two nodes"), std::string::npos);
  EXPECT_NE(with([](Fabric& f) { f.nodes[1].pop_back(); }).find("1 of 5 ranks are on no node"),
            std::string::npos);
  EXPECT_NE(with([](Fabric& f) { f.nodes[2].clear(); }).find("line 3: node 2 has no rank"),
            std::string::npos);
  EXPECT_EQ(with([](Fabric& f) { f.links[1].a = 3; }), "slow.toml, line 7: link: there is no node 3");
  EXPECT_EQ(with([](Fabric& f) { f.links[1].b = -1; }), "slow.toml, line 7: link: there is no node -1");
  EXPECT_NE(with([](Fabric& f) { f.links[1].a = 0; }).find("joins a node with itself"), std::string::npos);
  EXPECT_NE(
      with([](Fabric& f) { f.links[0].link.latency_s = -1e-3; }).find("line 6: link: a latency of -1 ms"),
      std::string::npos);
  EXPECT_NE(with([](Fabric& f) { f.links[0].link.bytes_per_s = 0; }).find("0 Gb/s carry nothing"),
            std::string::npos);
  EXPECT_NE(with([](Fabric& f) { f.nodes = {}; }).find("there are not two nodes"), std::string::npos);
  EXPECT_NE(with([](Fabric& f) { f.clock = Fabric::Clock::computed; }).find("needs the time of a sample"),
            std::string::npos);
}

TEST(FabricTest, RanksOfOneMachineSitOnInventedNodes) {
  auto cluster = uniform_cluster(1, 5);
  for (auto& place : cluster.ranks) place.machine = 0;
  const auto on = on_fabric(cluster, invented());
  std::string seats;
  for (const auto& place : on.ranks)
    seats += std::to_string(place.node) + "." + std::to_string(place.local_rank) + " ";
  EXPECT_EQ(seats, "0.0 0.1 1.0 1.1 2.0 ");
  EXPECT_EQ(on.cores_per_rank(4), cluster.cores_per_rank(4)) << "they still share the machine's cores";
  EXPECT_EQ(on.parted_machines().size(), 1U);
}

TEST(FabricTest, AfterALossTheNodesThatAreLeftAreCountedFromZero) {
  auto cluster = uniform_cluster(1, 3);
  const int left[] = {2, 3, 4};
  for (int rank = 0; rank < 3; ++rank) cluster.ranks[static_cast<std::size_t>(rank)].first_rank = left[rank];
  const auto on = on_fabric(cluster, invented());
  EXPECT_EQ(on.ranks[0].node, 0);
  EXPECT_EQ(on.ranks[1].node, 0);
  EXPECT_EQ(on.ranks[2].node, 1);
}

TEST(FabricTest, RanksOfDifferentMachinesAreNotOneNode) {
  try {
    on_fabric(uniform_cluster(5, 1), invented());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("node 0 run on different machines"), std::string::npos);
  }
}

}  // namespace
}  // namespace dtrain::topology
