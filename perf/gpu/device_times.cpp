// What a program's GPU work takes, kernel by kernel: loaded by the CUDA driver itself where
// CUDA_INJECTION64_PATH names this library. At the program's end it writes `launches,ns,name` of each kernel,
// copy and fill to the file that DTRAIN_DEVICE_TIMES names. Kernels of graphs are counted one by one.
// (CUPTI's activity records, NVIDIA CUPTI 13.0, "Activity API".)
#include <cupti.h>
#include <cxxabi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace {

constexpr std::size_t kBufferBytes = std::size_t{8} << 20;
constexpr std::size_t kAlignment = 8;  // of CUPTI's records

struct Times {
  std::uint64_t launches = 0;
  std::uint64_t ns = 0;
};

std::mutex mutex;
std::map<std::string, Times>& times_by_name() {
  static auto* const found = new std::map<std::string, Times>;  // outlives what runs at the program's end
  return *found;
}

void add(const std::string& name, std::uint64_t start_ns, std::uint64_t end_ns) {
  Times& times = times_by_name()[name];
  ++times.launches;
  times.ns += end_ns - start_ns;
}

void add(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      return add(kernel->name, kernel->start, kernel->end);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      return add("copy of kind " + std::to_string(copy->copyKind), copy->start, copy->end);
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      return add("fill", fill->start, fill->end);
    }
    default:
      return;
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *bytes = *buffer != nullptr ? kBufferBytes : 0;
  *records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid_bytes) {
  const std::lock_guard held(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) add(record);
  std::free(buffer);
}

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

void write_times() {
  cuptiActivityFlushAll(1);
  const std::lock_guard held(mutex);
  const char* const path = std::getenv("DTRAIN_DEVICE_TIMES");
  std::FILE* const file = path != nullptr ? std::fopen(path, "w") : nullptr;
  if (file == nullptr) {
    std::fputs("device_times: DTRAIN_DEVICE_TIMES names no file that can be written\n", stderr);
    return;
  }
  for (const auto& [name, times] : times_by_name()) {
    std::fprintf(file, "%llu,%llu,%s\n", static_cast<unsigned long long>(times.launches),
                 static_cast<unsigned long long>(times.ns), readable(name).c_str());
  }
  std::fclose(file);
}

}  // namespace

/// The driver calls it before the first context. 0: it failed.
extern "C" int InitializeInjection() {
  bool enabled = cuptiActivityRegisterCallbacks(give_buffer, take_buffer) == CUPTI_SUCCESS;
  for (const auto kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    enabled = enabled && cuptiActivityEnable(kind) == CUPTI_SUCCESS;
  if (!enabled) std::fputs("device_times: CUPTI refuses to record\n", stderr);
  if (enabled) std::atexit(write_times);
  return enabled ? 1 : 0;
}
