// CUDA graphs, with LibTorch's memory for what is captured.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <utility>

#include "parallel/step/device_graph.hpp"

namespace dtrain::parallel {
namespace {

/// LibTorch's, which leaves its generators and allocators as in a capture where CUDA does not end one in
/// order.
class LibTorchGraph final : public at::cuda::CUDAGraph {
 public:
  void begin(at::MempoolId_t memory, cudaStreamCaptureMode mode) {
    capture_begin(memory, mode);
    begun_ = true;
  }

  /// After capture_begin() or capture_end() threw. A generator that stays in a capture refuses the replay of
  /// all graphs, an allocator the next capture, and a pool that this graph still counts for is never free.
  void undo_capture() noexcept {
    for (const auto& [generator, increment] : captured_generator_states_) generator->capturing_ = false;
    // The destructor of a graph whose capture has ended gives the pool back.
    const bool counts = begun_ && !capture_ended_;
    auto* const device = c10::cuda::CUDACachingAllocator::get();
    give_back(
        counts, [&] { device->endAllocateToPool(capture_dev_, mempool_id_); },
        [&] { device->releasePool(capture_dev_, mempool_id_); });
    auto* const host = at::getHostAllocator(at::kCUDA);
    give_back(
        counts, [&] { host->end_allocate_to_pool(mempool_id_); }, [&] { host->release_pool(mempool_id_); });
    begun_ = false;
  }

 private:
  /// An allocator that can end had begun, and so counts this graph, whatever has thrown since.
  template <class End, class Release>
  static void give_back(bool counts, const End& end, const Release& release) noexcept {
    try {
      end();
      counts = true;
    } catch (const std::exception&) {  // capture_end() had come so far, or capture_begin() had not
    }
    try {
      if (counts) release();
    } catch (const std::exception&) {  // nothing to give back
    }
  }

  bool begun_ = false;
};

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(std::shared_ptr<const at::MempoolId_t> memory) : memory_(std::move(memory)) {}

  // Relaxed: backward ends in another thread what this one begins, and meanwhile communication's threads look
  // after events of their own.
  void begin() override { graph_.begin(*memory_, cudaStreamCaptureModeRelaxed); }
  void end() override { graph_.capture_end(); }

  void abandon() noexcept override {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      graph_.undo_capture();
    }
    cudaGetLastError();  // what made the capture fail is not the next call's error
  }

  void replay() override { graph_.replay(); }

 private:
  LibTorchGraph graph_;
  std::shared_ptr<const at::MempoolId_t> memory_;
};

class CudaGraphs final : public DeviceGraphs {
 public:
  std::unique_ptr<DeviceGraph> make() const override {
    auto memory = memory_.lock();
    if (memory == nullptr) {
      memory = std::make_shared<const at::MempoolId_t>(at::cuda::graph_pool_handle());
      memory_ = memory;
    }
    return std::make_unique<CudaGraph>(std::move(memory));
  }

 private:
  // Of all graphs that there are. LibTorch refuses captures into a pool for which no graph counts any more.
  mutable std::weak_ptr<const at::MempoolId_t> memory_;
};

}  // namespace
}  // namespace dtrain::parallel

extern "C" const dtrain::parallel::DeviceGraphs* dtrain_cuda_graphs() {
  static const dtrain::parallel::CudaGraphs graphs;
  return &graphs;
}
