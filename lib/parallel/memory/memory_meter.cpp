#include "parallel/memory/memory_meter.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>
#include <fmt/format.h>
#include <malloc.h>

#include <atomic>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

struct Counters {
  std::atomic<std::int64_t> live = 0;
  std::atomic<std::int64_t> peak = 0;
  std::atomic<std::int64_t> limit = 0;
};

Counters& counters() {
  static Counters the;
  return the;
}

void add(std::int64_t bytes) {
  auto& count = counters();
  const auto live = count.live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  auto peak = count.peak.load(std::memory_order_relaxed);
  while (live > peak && !count.peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

std::string in_words(std::int64_t bytes) {
  const auto kibibytes = static_cast<double>(bytes) / 1024;
  return kibibytes < 1024 ? fmt::format("{:.1f} KiB", kibibytes)
                          : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / kMebibyte);
}

void require_room(std::int64_t bytes) {
  const auto& count = counters();
  const auto limit = count.limit.load(std::memory_order_relaxed);
  if (limit == 0 || count.live.load(std::memory_order_relaxed) + bytes <= limit) return;
  throw Error(
      fmt::format("out of memory: {} more than the {} in use would pass the limit", in_words(bytes),
                  in_words(count.live.load())),
      {.subject = "--memory-limit " + in_words(limit),
       .advice = "allow more; or use --recompute full, more --micro-batches, fewer samples in an evaluation "
                 "(--eval-batch N), or more stages (--mesh pipe=P)"});
}

/// LibTorch's own memory, counted by what malloc gave.
class Metered final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    require_room(static_cast<std::int64_t>(bytes));
    void* const data = c10::alloc_cpu(bytes);
    add(static_cast<std::int64_t>(malloc_usable_size(data)));
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    add(-static_cast<std::int64_t>(malloc_usable_size(data)));
    c10::free_cpu(data);
  }
};

constexpr std::uint8_t kAboveTheDefault = 1;

/// What LibTorch takes without the meter.
class Unmetered final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = c10::alloc_cpu(bytes);
    return {data, data, &c10::free_cpu, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

MemoryMeter::Uncounted::Uncounted() : counting_(c10::GetCPUAllocator()) {
  static Unmetered allocator;
  c10::SetCPUAllocator(&allocator, kAboveTheDefault);
}

MemoryMeter::Uncounted::~Uncounted() { c10::SetCPUAllocator(counting_, kAboveTheDefault); }

MemoryMeter& MemoryMeter::process() {
  static MemoryMeter the;
  return the;
}

void MemoryMeter::install() {
  static Metered allocator;
  c10::SetCPUAllocator(&allocator, kAboveTheDefault);
}

void MemoryMeter::limit(std::int64_t bytes) { counters().limit = bytes; }
std::int64_t MemoryMeter::live() const { return counters().live; }
std::int64_t MemoryMeter::peak() const { return counters().peak; }
void MemoryMeter::begin_peak() { counters().peak = counters().live.load(); }

void MemoryMeter::charge(std::int64_t bytes) {
  if (bytes > 0) require_room(bytes);
  add(bytes);
}

}  // namespace dtrain::parallel
