// A driver that is too old for the CUDA that dtrain was built with: old_driver.c stands in for it.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/device/cuda_module.hpp"

namespace dtrain::comm {
namespace {

TEST(OldDriverTest, SaysWhichCudaItKnowsAndWhichIsNeeded) {
  ASSERT_NE(dlopen(DTRAIN_OLD_DRIVER, RTLD_NOW | RTLD_GLOBAL), nullptr)
      << dlerror();  // found by its name from now on
  const CudaModule module(DTRAIN_CUDA_MODULE);
  EXPECT_EQ(module.device_count(), 0);
  EXPECT_THAT(module.device_problem(),
              testing::MatchesRegex("the driver is too old: it knows CUDA 12.4, and this "
                                    "program needs [0-9]+.[0-9]+"));
}

}  // namespace
}  // namespace dtrain::comm
