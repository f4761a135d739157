// Achieved bandwidth of the kernels for GPUs, by events on the device: median of 20 launches, with the bytes
// that a launch has to read and write. Run it from the build folder, where there is a GPU.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <vector>

#include "comm/device/cuda_module.hpp"
#include "kernels/device_kernels.hpp"

namespace {

using namespace dtrain;

constexpr int kLaunches = 20;
constexpr std::size_t kElements = std::size_t{64} << 20;  // 256 MiB of floats: more than any cache

float median_ms(const std::function<void()>& launch) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  launch();  // the first one loads the kernel
  std::vector<float> times(kLaunches);
  for (float& ms : times) {
    cudaEventRecord(begin);
    launch();
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&ms, begin, end);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::ranges::nth_element(times, times.begin() + kLaunches / 2);
  return times[kLaunches / 2];
}

void report(const char* kernel, double bytes, const std::function<void()>& launch) {
  const float ms = median_ms(launch);
  fmt::print("{:<34} {:>9.1f} MiB {:>9.1f} us {:>8.0f} GB/s\n", kernel, bytes / 0x1p20, 1e3 * ms,
             bytes / (1e6 * ms));
}

void run() {
  const comm::CudaModule module;
  if (module.device_count() == 0) throw std::runtime_error("no GPU");
  const auto& kernels =
      *reinterpret_cast<kernels::DeviceKernelsEntry>(module.symbol("dtrain_device_kernels"))();
  using kernels::Element;
  void* a = nullptr;
  void* b = nullptr;
  cudaMalloc(&a, kElements * sizeof(float));
  cudaMalloc(&b, kElements * sizeof(float));
  cudaMemset(a, 0, kElements * sizeof(float));

  const std::size_t images = 2048;
  kernels::ImageBatch batch{.shape = {3, 32, 32}, .how = {}, .padding = 4, .factor = {}, .shift = {}};
  for (std::size_t i = 0; i < images; ++i)
    batch.how.push_back(kernels::crop_and_flip_of(1, 1, static_cast<std::int64_t>(i), 4));
  kernels::set_normalisation(batch, {}, {});
  const double bytes = static_cast<double>(images) * 3 * 32 * 32;
  report("prepare_images to bfloat16, 2048", 3 * bytes, [&] {
    kernels.prepare_images(b, Element::bfloat16, static_cast<const std::uint8_t*>(a), images, batch, nullptr);
  });
  const auto n = static_cast<double>(kElements);
  report("dropout of float32", 8 * n, [&] {
    kernels.dropout(b, a, Element::float32, {.columns = kElements}, {.seed = 1}, nullptr, 0.5, nullptr);
  });
  report("cast_scale float32 to bfloat16", 6 * n,
         [&] { kernels.cast_scale(b, Element::bfloat16, a, Element::float32, kElements, 0.5F, nullptr); });
  report("sum_of_squares_and_nonfinite", 4 * n, [&] {
    auto* const result = static_cast<kernels::SumOfSquares*>(b);
    kernels.sum_of_squares_and_nonfinite(result, result + 1, static_cast<const float*>(a), kElements,
                                         nullptr);
  });
  cudaFree(a);
  cudaFree(b);
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "dtrain_perf_device_kernels: {}\n", error.what());
    return 2;
  }
}
