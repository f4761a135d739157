#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <map>
#include <mutex>

#include "support/guarded_device.hpp"

namespace dtrain {

/// All of the guarded device's memory: who may touch it, and how many do. Blocks that are taken while a graph
/// is captured are never given back, for the graph goes on using them.
class GuardedMemory {
 public:
  static GuardedMemory& all();

  /// Throws c10::OutOfMemoryError where DTRAIN_GUARDED_BYTES would be passed.
  void* allocate(std::size_t bytes);
  void release(void* data);
  long long peak() const { return peak_; }

  /// From open() to close() the CPU may touch the block that `data` lies in; other memory is left alone.
  void open(void* data) { change(data, 1); }
  void close(void* data) { change(data, -1); }

 private:
  struct Block {
    std::size_t bytes = 0;
    int users = 0;
    bool of_graph = false;
  };
  GuardedMemory();
  void change(void* data, int by);

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  long long bytes_ = 0;
  long long peak_ = 0;
  const long long limit_;
};

/// The same memory as LibTorch asks for it.
c10::DeviceAllocator& guarded_allocator();

/// Where operations are kept now (guarded_capture()); null: they are done.
GuardedWork* guarded_captured();

}  // namespace dtrain
