#pragma once

#include <atomic>
#include <cstdint>

namespace dtrain::comm {

/// Counts what threads of a process wait for, and wakes them. Like std::atomic's wait(), but all that it
/// needs is in the object: that one keeps a table of the waiting threads in the program, of which a module
/// with its own copy of this code has another, and then neither wakes the other's threads. Thread-safe.
class Changes {
 public:
  std::uint32_t seen() const { return count_; }
  /// Wakes all threads in wait().
  void announce() noexcept;
  /// Until announce() is called after seen() gave `seen`; at once where it was. May also return before.
  void wait(std::uint32_t seen) noexcept;

 private:
  std::atomic<std::uint32_t> count_ = 0;
  std::atomic<std::uint32_t> waiting_ = 0;  ///< Threads in wait().
};

}  // namespace dtrain::comm
