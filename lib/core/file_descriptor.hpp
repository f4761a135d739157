#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dtrain {

/// A file descriptor with one owner. Closes it at its end and leaves errno as it was, so that a caller may
/// still read why an earlier call failed.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  /// Takes `value` over; negative, as failed calls return it: none.
  explicit FileDescriptor(int value) noexcept : value_(value) {}
  FileDescriptor(FileDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    FileDescriptor taken(std::move(other));
    std::swap(value_, taken.value_);
    return *this;
  }
  ~FileDescriptor() {
    const int reason = errno;
    close();
    errno = reason;
  }

  bool is_open() const noexcept { return value_ >= 0; }
  int get() const noexcept { return value_; }  ///< Negative where there is none.

  /// Closes it now. False, with errno set, where the system reports that earlier writes have failed.
  bool close() noexcept { return value_ < 0 || ::close(std::exchange(value_, -1)) == 0; }

 private:
  int value_ = -1;
};

}  // namespace dtrain
