#include "parallel/device/rank_device.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>

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

/// A device whose every stream is another, and which counts how often its memory was asked back.
struct Streams final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, ++newest);
  }
  static inline c10::StreamId newest = 0;
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Streams)

struct CountingAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t) override { return {}; }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { ++emptied; }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  void copy_data(void*, const void*, std::size_t) const override {}
  int emptied = 0;
};

// What LibTorch keeps of a first part's memory would be of use to no stream, and no other process's.
TEST(Device, ASecondPartOfARunHasTheFirstOnesMemory) {
  static CountingAllocator allocator;
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator);
  const c10::Device first{c10::DeviceType::PrivateUse1, 0};
  const c10::Device second{c10::DeviceType::PrivateUse1, 1};
  const auto stream = compute_stream(first);
  EXPECT_NE(compute_stream(second), stream);
  EXPECT_EQ(compute_stream(first), stream);
  EXPECT_EQ(Streams::newest, 2);
  free_unused_memory(first);
  EXPECT_EQ(allocator.emptied, 1);
  EXPECT_NO_THROW(free_unused_memory(c10::kCPU)) << "nothing is kept there";
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
  EXPECT_NO_THROW(free_unused_memory(c10::kCUDA)) << "before CUDA's first use";
  // LibTorch asks once who answers for CUDA, and keeps to that: nothing may have asked before.
  EXPECT_GT(at::detail::getCUDAHooks().versionCUDART(), 0);
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU: label gpu covers it";
  EXPECT_THROW(at::ones({2}, at::kCUDA), c10::Error);
}

#ifdef DTRAIN_CUDA_GRAPHS
const DeviceGraphs* cuda_graphs() {
  load_libtorch_cuda();
  void* const module = dlopen(DTRAIN_CUDA_GRAPHS, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(module, nullptr) << dlerror();
  if (module == nullptr) return nullptr;
  const auto entry = reinterpret_cast<DeviceGraphsEntry>(dlsym(module, "dtrain_cuda_graphs"));
  EXPECT_NE(entry, nullptr);
  return entry != nullptr ? entry() : nullptr;
}

TEST(Device, GraphsComeFromAModuleThatUsesLibTorchsPartForCuda) {
  const DeviceGraphs* const module = cuda_graphs();
  ASSERT_NE(module, nullptr);
  const DeviceGraphs& graphs = *module;
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

// Waiting for the device invalidates a capture: CUDA then ends it with an error.
TEST(Device, AfterACaptureThatFailedOlderGraphsAreReplayedAndNewOnesCaptured) {
  const DeviceGraphs* const graphs = cuda_graphs();
  ASSERT_NE(graphs, nullptr);
  if (!at::hasCUDA()) GTEST_SKIP() << "there is no GPU to capture on; the module opens";
  const at::Device device(at::kCUDA, 0);
  const c10::impl::VirtualGuardImpl streams(at::kCUDA);
  const auto before = streams.exchangeStream(compute_stream(device));
  const at::Tensor input = at::ones({3}, device);
  std::unique_ptr<DeviceGraph> older;
  for (const bool has_older : {false, true}) {  // without one, no graph is left of the failed one's memory
    {
      const auto failed = graphs->make();
      failed->begin();
      const at::Tensor drawn = at::rand({3}, device);
      EXPECT_THROW(drawn.sum().item<float>(), c10::Error);
      EXPECT_THROW(failed->end(), c10::Error);
      failed->abandon();
    }
    const auto graph = graphs->make();
    graph->begin();
    const at::Tensor output = input * 2 + at::rand({3}, device) * 0;
    graph->end();
    graph->replay();
    EXPECT_TRUE(output.cpu().equal(at::full({3}, 2.0F))) << has_older;
    if (has_older) {
      EXPECT_NO_THROW(older->replay());
      continue;
    }
    older = graphs->make();
    older->begin();
    const at::Tensor kept = input * 3;
    older->end();
  }
  streams.exchangeStream(before);
}
#endif

}  // namespace
}  // namespace dtrain::parallel
