#include "comm/device/cuda_module.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/groups.hpp"
#include "comm/job.hpp"
#include "core/error.hpp"
#include "core/profiler_ranges.hpp"

namespace dtrain::comm {
namespace {

using testing::HasSubstr;

/// Works without a driver: the module itself, its libraries and the versions.
TEST(CudaModuleTest, LoadsWithTheNcclItWasBuiltWith) {
  void* const module = dlopen(DTRAIN_CUDA_MODULE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << dlerror();
  using Text = const char* (*)();
  const auto problem = reinterpret_cast<Text>(dlsym(module, "dtrain_cuda_problem"));
  const auto description = reinterpret_cast<Text>(dlsym(module, "dtrain_nccl_description"));
  ASSERT_NE(problem, nullptr);
  ASSERT_NE(description, nullptr);
  EXPECT_NE(dlsym(module, "dtrain_make_nccl_group"), nullptr);
  EXPECT_EQ(problem(), nullptr) << problem();
  EXPECT_THAT(description(), HasSubstr("libnccl.so"));
}

TEST(CudaModuleTest, SaysWhichLibrariesItHasLoaded) {
  const auto found = CudaModule::libraries(DTRAIN_CUDA_MODULE);
  EXPECT_EQ(found.problem, "");
  EXPECT_THAT(found.nccl_built, testing::StartsWith("2."));
  EXPECT_THAT(found.nccl_loaded, testing::StartsWith("2."));
  EXPECT_EQ(found.runtime_built.substr(0, 3), found.runtime_loaded.substr(0, 3));
  EXPECT_EQ(found.driver.empty(), !CudaModule::why_no_driver().empty());
  EXPECT_THAT(CudaModule::libraries("/absent/module.so").problem, HasSubstr("/absent/module.so"));
}

TEST(CudaModuleTest, AProfilerThatListensSeesRanges) {
  ASSERT_EQ(setenv("NVTX_INJECTION64_PATH", DTRAIN_PROFILER, 1),
            0);  // NVTX looks at it once, at its first call
  void* const module = dlopen(DTRAIN_CUDA_MODULE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << dlerror();
  using Ranges = const ProfilerRanges* (*)();
  const auto entry = reinterpret_cast<Ranges>(dlsym(module, "dtrain_profiler_ranges"));
  ASSERT_NE(entry, nullptr);
  entry()->push("forward");
  entry()->push("wait");
  entry()->pop();
  entry()->pop();
  void* const profiler = dlopen(DTRAIN_PROFILER, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(profiler, nullptr) << "NVTX has not opened it";
  using Heard = const char* (*)();
  EXPECT_STREQ(reinterpret_cast<Heard>(dlsym(profiler, "what_the_profiler_heard"))(), "forward(wait())");
}

TEST(CudaModuleTest, SaysWhatIsMissingWithoutADriver) {
  if (CudaModule::why_no_driver().empty()) GTEST_SKIP() << "this machine has a driver";
  try {
    const CudaModule module(DTRAIN_CUDA_MODULE);
    ADD_FAILURE() << "opened without a driver";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("libcuda.so.1"));
    EXPECT_THAT(error.what(), HasSubstr("--device cpu"));
  }
}

TEST(CudaModuleTest, RefusesNcclForARunOnCpus) {
  try {
    const Job job(1, {.backend = Backend::nccl});
    ADD_FAILURE() << "made NCCL groups for CPUs";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("--comm-backend nccl"));
  }
}

}  // namespace
}  // namespace dtrain::comm
