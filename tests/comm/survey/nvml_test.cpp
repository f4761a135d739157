#include "comm/survey/nvml.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace dtrain::comm {
namespace {

std::vector<topology::Gpu> gpus_of(const char* machine) {
  ::setenv("FAKE_NVML", machine, 1);
  return read_gpus(DTRAIN_FAKE_NVML);
}

TEST(NvmlTest, LinksBetweenGpus) {
  const auto gpus = gpus_of("islands");
  ASSERT_EQ(gpus.size(), 4U);
  EXPECT_EQ(gpus[3].uuid, "GPU-3");
  EXPECT_EQ(gpus[0].nvlinks, std::vector<int>{2});
  EXPECT_EQ(gpus[3].nvlinks, std::vector<int>{1});
  EXPECT_EQ(topology::islands(gpus), (std::vector<int>{0, 1, 0, 1}));
}

TEST(NvmlTest, LinksThroughASwitchJoinAll) {
  const auto gpus = gpus_of("switch");
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(topology::islands(gpus), (std::vector<int>{0, 0}));
}

TEST(NvmlTest, NoGpuAndNoLibrary) {
  EXPECT_TRUE(gpus_of("nothing").empty());
  EXPECT_TRUE(read_gpus("libnot-there.so.1").empty());
}

TEST(NvmlTest, TellsWhatAGpuDoes) {
  const auto state = read_gpu_state("GPU-0", DTRAIN_FAKE_NVML);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->in_words(), "NVIDIA Stand-in at 1980 MHz, memory 3201 MHz, 540.2 W, 0 C");
  EXPECT_FALSE(read_gpu_state("GPU-9", DTRAIN_FAKE_NVML));
  EXPECT_FALSE(read_gpu_state("GPU-0", "libabsent.so"));
}

}  // namespace
}  // namespace dtrain::comm
