// What the stand-in for a GPU's threads finds in a kernel: the faults that it is there for.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/shared_memory.hpp"
#include "kernels/cuda/warp.hpp"

namespace dtrain::kernels {
namespace {

constexpr unsigned kBlock = 64;

struct Shared {
  float of[kBlock];
};

void rotate_kernel(float* out, bool waits) {
  auto& memory = shared_memory<Shared>();
  memory.of[threadIdx.x] = static_cast<float>(blockIdx.x * kBlock + threadIdx.x);
  if (waits) __syncthreads();
  out[blockIdx.x * kBlock + threadIdx.x] = memory.of[(threadIdx.x + 1) % kBlock];
}

TEST(CudaOnCpuTest, ThreadsMeetAtABarrier) {
  std::vector<float> out(3 * kBlock);
  launch(rotate_kernel, 3, kBlock, nullptr, out.data(), true);
  for (unsigned i = 0; i < out.size(); ++i)
    EXPECT_EQ(out[i], static_cast<float>(i / kBlock * kBlock + (i + 1) % kBlock));
}

TEST(CudaOnCpuTest, AMissingBarrierShows) {
  std::vector<float> out(3 * kBlock);
  launch(rotate_kernel, 3, kBlock, nullptr, out.data(), false);
  for (unsigned block = 0; block < 3; ++block) {
    unsigned unset = 0;
    for (unsigned i = 0; i < kBlock; ++i) unset += std::isnan(out[block * kBlock + i]) ? 1 : 0;
    EXPECT_GT(unset, 0U) << "of block " << block;
  }
}

void sum_kernel(float* out, unsigned apart) {
  out[threadIdx.x] = sum_over_warp(static_cast<float>(threadIdx.x), apart);
}

TEST(CudaOnCpuTest, LanesExchangeWithinTheirWarp) {
  std::vector<float> out(kBlock);
  launch(sum_kernel, 1, kBlock, nullptr, out.data(), 1U);
  EXPECT_EQ(out[0], 496.0F);
  EXPECT_EQ(out[40], 496.0F + 32 * 32);
  launch(sum_kernel, 1, kBlock, nullptr, out.data(), 8U);
  EXPECT_EQ(out[3], 3.0F + 11 + 19 + 27);
}

void some_wait_kernel(unsigned count) {
  if (threadIdx.x < count) __syncthreads();
}
void two_places_kernel() {
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST(CudaOnCpuTest, ABarrierThatNotAllReachIsAnError) {
  EXPECT_NO_THROW(launch(some_wait_kernel, 1, kBlock, nullptr, kBlock));
  EXPECT_THROW(launch(some_wait_kernel, 1, kBlock, nullptr, kBlock - 1), Error);
  EXPECT_THROW(launch(two_places_kernel, 1, kBlock, nullptr), Error);
}

TEST(CudaOnCpuTest, AnExchangeThatNotAllLanesReachIsAnError) {
  std::vector<float> out(kBlock);
  EXPECT_THROW(launch(sum_kernel, 1, 33, nullptr, out.data(), 1U), Error);
}

}  // namespace
}  // namespace dtrain::kernels
