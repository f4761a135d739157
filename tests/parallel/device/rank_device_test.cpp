#include "parallel/device/rank_device.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

TEST(Device, NamesAreThoseOfTheHelp) {
  for (const char* name : {"auto", "cpu", "cuda"}) EXPECT_TRUE(is_device_name(name));
  for (const char* name : {"", "gpu", "CUDA", "cuda:0", "guarded"})
    EXPECT_FALSE(is_device_name(name)) << name;
}

TEST(Device, AGpuThatOthersFillIsRefused) {
  EXPECT_NO_THROW(require_free_memory("GPU-1", {.free_bytes = 10, .total_bytes = 100}));
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  try {
    require_free_memory("GPU-1", {.free_bytes = kGib / 2, .total_bytes = 140 * kGib});
    FAIL() << "half a GiB suffices";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("GPU-1 has 0.5 of its 140.0 GiB left: other processes"),
              std::string::npos)
        << error.what();
  }
}

TEST(Device, Tf32IsOnForAllProductsOrForNone) {
  const auto& context = at::globalContext();
  for (const bool wanted : {true, false, true, false}) {
    use_tf32(wanted);
    EXPECT_EQ(context.allowTF32CuBLAS(), wanted);
    EXPECT_EQ(context.allowTF32CuDNN(), wanted);
    EXPECT_EQ(context.allowTF32CuDNN(at::Float32Op::CONV), wanted);
    EXPECT_EQ(context.allowTF32CuDNN(at::Float32Op::RNN), wanted);
    // The CPU's products stay as they are.
    EXPECT_FALSE(context.allowTF32OneDNN());
    const at::Tensor factor = at::full({4, 4}, 1.0 + 0x1p-20);
    EXPECT_TRUE(factor.mm(at::eye(4)).equal(factor));
  }
}

// Also where there is no GPU: its libraries are installed with LibTorch.
TEST(Device, LibTorchsPartForCudaIsLoadedIntoAProcessWithoutIt) {
  try {
    load_libtorch_cuda();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
    GTEST_SKIP() << "a LibTorch for CPUs only: " << error.what();
  }
  EXPECT_NO_THROW(at::ones({2}).add_(1));
  // LibTorch asks once who answers for CUDA, and keeps to that: nothing may have asked before.
  EXPECT_GT(at::detail::getCUDAHooks().versionCUDART(), 0);
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU: label gpu covers it";
  EXPECT_THROW(at::ones({2}, at::kCUDA), c10::Error);
}

#ifdef DTRAIN_CUDA_GRAPHS
TEST(Device, GraphsComeFromAModuleThatUsesLibTorchsPartForCuda) {
  load_libtorch_cuda();
  void* const module = dlopen(DTRAIN_CUDA_GRAPHS, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << dlerror();
  const auto entry = reinterpret_cast<DeviceGraphsEntry>(dlsym(module, "dtrain_cuda_graphs"));
  ASSERT_NE(entry, nullptr);
  const DeviceGraphs& graphs = *entry();
  if (!at::hasCUDA()) GTEST_SKIP() << "there is no GPU to capture on; the module opens";
  const at::Device device(at::kCUDA, 0);
  const c10::impl::VirtualGuardImpl streams(at::kCUDA);
  const auto before = streams.exchangeStream(streams.getStreamFromGlobalPool(device));
  const at::Tensor input = at::ones({3}, device);
  const auto graph = graphs.make();
  graph->begin();
  const at::Tensor output = input * 2;
  graph->end();
  input.fill_(5);
  graph->replay();
  EXPECT_TRUE(output.cpu().equal(at::full({3}, 10.0F)));
  streams.exchangeStream(before);
}
#endif

}  // namespace
}  // namespace dtrain::parallel
