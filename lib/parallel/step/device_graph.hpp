#pragma once

#include <memory>

namespace dtrain::parallel {

/// Work that was given to a device once and can be given to it again by one call: the same operations on the
/// same memory, with the same numbers wherever the CPU supplied them. On GPUs, a CUDA graph.
///
/// Memory that tensors take while work is captured stays the graph's, and may serve other graphs of the
/// process as well: of two, one runs after the other, and what it has left is read before the other runs.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  /// What the compute stream is given from here on is kept and not done. Whatever must wait for the device,
  /// or copies from memory that is not page-locked, throws c10::Error then.
  virtual void begin() = 0;
  /// Until here. May be called in another thread than begin(). Throws c10::Error when it cannot be replayed.
  virtual void end() = 0;
  /// Instead of end(), or after one that threw: nothing is kept.
  virtual void abandon() noexcept = 0;

  /// Gives all of it to the compute stream.
  virtual void replay() = 0;
};

/// Makes the graphs of one kind of device.
class DeviceGraphs {
 public:
  virtual ~DeviceGraphs() = default;
  virtual std::unique_ptr<DeviceGraph> make() const = 0;
};

/// What the module's function `dtrain_cuda_graphs` is; the maker lives as long as the module.
using DeviceGraphsEntry = const DeviceGraphs* (*)();

}  // namespace dtrain::parallel
