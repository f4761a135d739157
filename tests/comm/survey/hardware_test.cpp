#include "comm/survey/hardware.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "comm/survey/binding.hpp"

namespace dtrain::comm {
namespace {

TEST(HardwareTest, NumaNodesOfAMachineThatOneHasNotGot) {
  ::setenv("HWLOC_SYNTHETIC", "package:2 numa:2 core:2 pu:1", 1);
  const Hardware hardware = read_hardware(false);
  ::unsetenv("HWLOC_SYNTHETIC");
  ASSERT_EQ(hardware.numa_nodes.size(), 4U);
  EXPECT_EQ(hardware.numa_nodes[3].cpus, (std::vector<int>{6, 7}));
  EXPECT_EQ(hardware.numa_node_of({4, 5}), 2);
  EXPECT_EQ(hardware.numa_node_of({7}), 3);
  EXPECT_EQ(hardware.numa_node_of({5, 6}), -1);
  EXPECT_EQ(hardware.numa_node_of({}), -1);
  EXPECT_EQ(hardware.to_string(), "4 NUMA nodes (0-1; 2-3; 4-5; 6-7)");
}

TEST(HardwareTest, DevicesAreSaidWithTheNumaNodeTheyAreNear) {
  const Hardware hardware = {
      .numa_nodes = {{0, {0, 1}}, {1, {2, 3}}},
      .devices = {{Hardware::Kind::fabric, "mlx5_0", 1}, {Hardware::Kind::network, "eth0", -1}},
      .gpus = {{.uuid = "GPU-a", .numa_node = 1, .nvlinks = {}}, {.uuid = "GPU-b"}}};
  EXPECT_EQ(hardware.to_string(),
            "2 NUMA nodes (0-1; 2-3); fabric mlx5_0 (NUMA 1); network eth0; "
            "GPU 0 GPU-a (NUMA 1, island 0); GPU 1 GPU-b (island 1)");
}

TEST(HardwareTest, ThisMachineHasTheCoresOfTheMask) {
  const Hardware hardware = read_hardware(true);
  ASSERT_FALSE(hardware.numa_nodes.empty());
  std::size_t cores = 0;
  for (const auto& node : hardware.numa_nodes) cores += node.cpus.size();
  EXPECT_GE(cores, affinity_mask().size());
}

TEST(BindingTest, WordsThatSayHowToBind) {
  for (const char* word : {"--bind-to", "-bind-to", "--bind-to=core", "--cpu-set", "--rankfile",
                           "ppr:2:node:PE=4", "hwloc_default_binding_policy"}) {
    EXPECT_TRUE(names_a_binding({"mpirun", word, "core"})) << word;
  }
  EXPECT_FALSE(
      names_a_binding({"mpirun", "-np", "2", "--map-by", "ppr:1:node", "./dtrain", "--epochs", "2"}));
}

TEST(BindingTest, MoreRanksThanTwoAreLeftAsTheyAre) {
  const auto before = affinity_mask();
  const DefaultBinding binding({.ranks = 3, .local_rank = 0, .local_size = 3});
  EXPECT_EQ(binding.most_cores(), before);
  EXPECT_EQ(affinity_mask(), before);
}

TEST(BindingTest, HardwareThreadsOfACoreStayTogetherWhateverTheirNumbers) {
  ::setenv("HWLOC_SYNTHETIC", "package:2 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)", 1);
  const auto all = cores_of({0, 1, 2, 3, 4, 5, 6, 7});
  const auto some = cores_of({2, 3, 5, 6, 9});
  ::unsetenv("HWLOC_SYNTHETIC");
  EXPECT_EQ(all, (std::vector<std::vector<int>>{{0, 4}, {2, 6}, {1, 5}, {3, 7}}));
  EXPECT_EQ(some, (std::vector<std::vector<int>>{{2, 6}, {5}, {3}, {9}})) << "9 is of no core";
}

}  // namespace
}  // namespace dtrain::comm
