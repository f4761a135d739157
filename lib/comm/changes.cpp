#include "comm/changes.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace dtrain::comm {
namespace {

// futex(2): the kernel looks at the number itself, and sleeps only where it is still the one that was seen.
void futex(std::atomic<std::uint32_t>& number, int operation, std::uint32_t value) noexcept {
  static_assert(sizeof number == sizeof(std::uint32_t));
  ::syscall(SYS_futex, &number, operation, value, nullptr, nullptr, 0);
}

}  // namespace

void Changes::announce() noexcept {
  ++count_;
  // A thread that enters wait() after this look finds the new number there.
  if (waiting_ > 0) futex(count_, FUTEX_WAKE_PRIVATE, INT_MAX);
}

void Changes::wait(std::uint32_t seen) noexcept {
  ++waiting_;
  if (count_ == seen) futex(count_, FUTEX_WAIT_PRIVATE, seen);
  --waiting_;
}

}  // namespace dtrain::comm
