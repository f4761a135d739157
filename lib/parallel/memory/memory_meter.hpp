#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

namespace dtrain::parallel {

/// Counts the memory that tensors of this process take, and holds it to a limit. LibTorch has one CPU
/// allocator per process, so there is one meter. What is not LibTorch's (parameters in shared memory, buffers
/// of collectives) is charged by the code that takes it. Counting is safe from any thread.
class MemoryMeter {
 public:
  static MemoryMeter& process();

  /// Becomes LibTorch's allocator; memory taken before is not counted. Once, before helper threads start.
  void install();
  /// From now on what would pass `bytes` throws Error that names --memory-limit; 0: no limit.
  void limit(std::int64_t bytes);

  /// While it lives, LibTorch's memory is not counted: for tensors that nothing is written to, which take no
  /// more than addresses. In one thread, and not within another one.
  class Uncounted {
   public:
    Uncounted();
    ~Uncounted();
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;

   private:
    c10::Allocator* counting_;
  };

  std::int64_t live() const;  ///< Bytes.
  std::int64_t peak() const;  ///< Since the last begin_peak().
  void begin_peak();

  /// Memory taken past LibTorch's allocator, in bytes; negative when it is given back. Throws Error beyond
  /// the limit.
  void charge(std::int64_t bytes);
};

/// A charge for as long as it lives.
class MemoryCharge {
 public:
  explicit MemoryCharge(std::int64_t bytes) : bytes_(bytes) { MemoryMeter::process().charge(bytes); }
  ~MemoryCharge() { MemoryMeter::process().charge(-bytes_); }
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;

 private:
  std::int64_t bytes_;
};

}  // namespace dtrain::parallel
