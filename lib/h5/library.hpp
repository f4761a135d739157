#pragma once

#include <mutex>

namespace dtrain::h5 {

/// The process's HDF5 library. A caller of this folder's functions holds its lock, for one burst of at
/// most about 4 MiB: a checkpoint of 120 MB written under HDF5's own lock stalled the recorder by 378 ms.
/// Main makes one and hands it down by reference. The lock is not recursive.
///
///     const auto lock = library.lock();
///     const h5::File file = h5::open_file("results.h5", h5::Access::read);   // closed before the lock is
///     freed
class Library {
 public:
  using Lock = std::unique_lock<std::mutex>;

  /// Throws Error when the library does not start or is older than the headers.
  Library();

  Lock lock() { return Lock(mutex_); }                        ///< Waits for the burst of another thread.
  Lock try_lock() { return Lock(mutex_, std::try_to_lock); }  ///< owns_lock() says whether it was free.

 private:
  std::mutex mutex_;
};

}  // namespace dtrain::h5
