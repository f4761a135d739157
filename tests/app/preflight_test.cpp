#include "preflight.hpp"

#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "parallel/device/rank_device.hpp"

namespace dtrain::app {
namespace {

// LibTorch asks once per process for its part for CUDA and keeps the answer. The checks before a run come
// first.
TEST(Preflight, LooksAtLibrariesWithoutAskingLibTorchForCuda) {
  EXPECT_FALSE(judge_libraries().empty());
  try {
    parallel::load_libtorch_cuda();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
    GTEST_SKIP() << "a LibTorch for CPUs only: " << error.what();
  }
  EXPECT_GT(at::detail::getCUDAHooks().versionCUDART(), 0);
}

}  // namespace
}  // namespace dtrain::app
