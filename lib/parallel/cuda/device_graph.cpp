// CUDA graphs, with LibTorch's memory for what is captured.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <exception>

#include "parallel/step/device_graph.hpp"

namespace dtrain::parallel {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(at::MempoolId_t memory) : memory_(memory) {}

  // Relaxed: backward ends in another thread what this one begins, and meanwhile communication's threads look
  // after events of their own.
  void begin() override { graph_.capture_begin(memory_, cudaStreamCaptureModeRelaxed); }
  void end() override { graph_.capture_end(); }

  void abandon() noexcept override {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      give_memory_back();
    }
    cudaGetLastError();  // what made the capture fail is not the next call's error
  }

  void replay() override { graph_.replay(); }

 private:
  // Where a capture ends in order, capture_end() does it. capture_begin() has made both allocators take from
  // the graphs' pool; each that stays so refuses the next capture.
  void give_memory_back() noexcept {
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(c10::cuda::current_device(), memory_);
    } catch (const std::exception&) {  // capture_end() had come so far
    }
    try {
      at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(memory_);
    } catch (const std::exception&) {  // likewise
    }
  }

  at::cuda::CUDAGraph graph_;
  at::MempoolId_t memory_;
};

class CudaGraphs final : public DeviceGraphs {
 public:
  std::unique_ptr<DeviceGraph> make() const override { return std::make_unique<CudaGraph>(memory_); }

 private:
  at::MempoolId_t memory_ = at::cuda::graph_pool_handle();  // of all graphs of the process
};

}  // namespace
}  // namespace dtrain::parallel

extern "C" const dtrain::parallel::DeviceGraphs* dtrain_cuda_graphs() {
  static const dtrain::parallel::CudaGraphs graphs;
  return &graphs;
}
