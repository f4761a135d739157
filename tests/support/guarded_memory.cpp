#include "support/guarded_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

namespace dtrain {
namespace {

std::size_t pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

long long limit() {
  const char* const given = std::getenv("DTRAIN_GUARDED_BYTES");
  return given != nullptr ? std::atoll(given) : std::numeric_limits<long long>::max();
}

struct GuardedAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes == 0 ? nullptr : GuardedMemory::all().allocate(bytes);
    return {data, data, [](void* block) { GuardedMemory::all().release(block); }, kGuarded};
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].peak = GuardedMemory::all().peak();
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {}
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override { std::abort(); }
};

}  // namespace

GuardedMemory::GuardedMemory() : limit_(limit()) {}

GuardedMemory& GuardedMemory::all() {
  static GuardedMemory memory;
  return memory;
}

void* GuardedMemory::allocate(std::size_t bytes) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes_ + static_cast<long long>(bytes) <= limit_,
                   "guarded: out of memory. Tried to allocate ", bytes, " bytes beside ", bytes_, " of ",
                   limit_, ".");
  void* data = mmap(nullptr, pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  const std::lock_guard lock(mutex_);
  blocks_[data] = {bytes, 0, guarded_captured() != nullptr};
  bytes_ += static_cast<long long>(bytes);
  peak_ = std::max(peak_, bytes_);
  return data;
}

void GuardedMemory::release(void* data) {
  const std::lock_guard lock(mutex_);
  const auto place = blocks_.find(data);
  if (place == blocks_.end() || place->second.of_graph) return;
  munmap(data, pages(place->second.bytes));
  bytes_ -= static_cast<long long>(place->second.bytes);
  blocks_.erase(place);
}

void GuardedMemory::change(void* data, int by) {
  const std::lock_guard lock(mutex_);
  auto place = blocks_.upper_bound(data);
  if (place == blocks_.begin()) return;
  --place;  // the last that begins at `data` or before
  auto& [begin, block] = *place;
  if (data >= static_cast<std::byte*>(begin) + block.bytes) return;
  block.users += by;
  mprotect(begin, pages(block.bytes), block.users > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
}

c10::DeviceAllocator& guarded_allocator() {
  static GuardedAllocator the_one;
  return the_one;
}

}  // namespace dtrain
