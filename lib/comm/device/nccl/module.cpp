// What the program finds in the shared module by name; comm/device/cuda_module.cpp is the other side.
#include <dlfcn.h>
#include <fmt/core.h>
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include "comm/device/cuda_module.hpp"
#include "comm/device/nccl/cuda_check.hpp"
#include "comm/device/nccl/nccl_group.hpp"
#include "core/profiler_ranges.hpp"

extern "C" int dtrain_oldest_architecture();  // of kernels/cuda, in the same module

namespace {

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

int loaded_version() {
  int code = 0;
  return ncclGetVersion(&code) == ncclSuccess ? code : 0;
}

/// Why this program's kernels cannot run on `device`; empty: they can.
std::string architecture_problem(int device) {
  int major = 0;
  int minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    return fmt::format("CUDA does not describe GPU {}", device);
  }
  const int oldest = dtrain_oldest_architecture();
  if (10 * major + minor >= oldest) return {};
  return fmt::format(
      "GPU {} has compute capability {}.{}, and this program was built for {}.{} and newer: build it with "
      "-DCMAKE_CUDA_ARCHITECTURES={}{}",
      device, major, minor, oldest / 10, oldest % 10, major, minor);
}

/// The order of NCCL's calls as the order of their kernels needs driver and build of CUDA 12.3; below it NCCL
/// runs all kernels one after the other instead.
bool orders_launches() {
  int driver = 0;
  return CUDART_VERSION >= 12030 && cudaDriverGetVersion(&driver) == cudaSuccess && driver >= 12030;
}

/// Of the libnccl that is loaded, whatever the one was that this was compiled with.
dtrain::comm::NcclExtras loaded_extras() {
  Dl_info where{};
  const bool known = dladdr(reinterpret_cast<void*>(&ncclGetVersion), &where) != 0;
  void* const library = known ? dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  if (library == nullptr) return {};
  auto found =
      dtrain::comm::NcclExtras::found_by([library](const char* name) { return dlsym(library, name); });
  dlclose(library);  // it stays: this module needs it
  return found;
}

}  // namespace

extern "C" {

/// `nccl VERSION (PATH)` of the library that was loaded.
const char* dtrain_nccl_description() {
  static const std::string text = [] {
    Dl_info where{};
    const bool known =
        dladdr(reinterpret_cast<void*>(&ncclGetVersion), &where) != 0 && where.dli_fname != nullptr;
    return fmt::format("nccl {} ({})", version_text(loaded_version()),
                       known ? where.dli_fname : "unknown file");
  }();
  return text.c_str();
}

/// The texts of CudaLibraries, in the order of its members; empty: not there.
const char* dtrain_cuda_version(int which) {
  static const std::array<std::string, 5> texts = [] {
    const auto cuda = [](int code) {
      return code == 0 ? std::string() : fmt::format("{}.{}", code / 1000, code % 1000 / 10);
    };
    int runtime = 0;
    int driver = 0;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    return std::array<std::string, 5>{version_text(NCCL_VERSION_CODE), version_text(loaded_version()),
                                      cuda(CUDART_VERSION), cuda(runtime), cuda(driver)};
  }();
  return texts[static_cast<std::size_t>(which)].c_str();
}

/// Why this NCCL cannot be used, or nullptr: it must be of the header's major version and not older.
const char* dtrain_cuda_problem() {
  static const std::string text = [] {
    const int loaded = loaded_version();
    if (loaded / 10000 == NCCL_MAJOR && loaded >= NCCL_VERSION_CODE) return std::string();
    return fmt::format("libnccl {} was loaded but dtrain was built with {}", version_text(loaded),
                       version_text(NCCL_VERSION_CODE));
  }();
  return text.empty() ? nullptr : text.c_str();
}

int dtrain_cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/// Empty: there are some.
const char* dtrain_cuda_device_problem() {
  static std::string text;
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorInsufficientDriver) {
    text = fmt::format("the driver is too old: it knows CUDA {}, and this program needs {}",
                       dtrain_cuda_version(4), dtrain_cuda_version(3));
  } else if (code != cudaSuccess) {
    text = cudaGetErrorString(code);
  } else {
    text = count > 0 ? "" : "the driver is there, but no GPU that this process may use";
    for (int device = 0; device < count && text.empty(); ++device) text = architecture_problem(device);
  }
  return text.c_str();
}

/// The device is the current one from then on: to leave it for another would start CUDA there, too.
dtrain::comm::DeviceMemory dtrain_cuda_device_memory(int device) {
  cudaDeviceProp properties{};
  cudaGetDeviceProperties(&properties, device);
  std::size_t free = 0;
  std::size_t total = 0;
  // Where it has no room for what CUDA itself needs, this fails.
  if (cudaSetDevice(device) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) free = 0;
  return {.free_bytes = static_cast<std::int64_t>(free),
          .total_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)};
}

/// Valid until the next call; nullptr: not known.
const char* dtrain_cuda_device_uuid(int device) {
  static std::string text;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return nullptr;
  text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return text.c_str();
}

/// As NCCL compares them: slices of one card (MIG) have one. Valid until the next call; nullptr: not known.
const char* dtrain_cuda_device_bus(int device) {
  static std::array<char, 32> text{};
  return cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device) == cudaSuccess
             ? text.data()
             : nullptr;
}

const dtrain::ProfilerRanges* dtrain_profiler_ranges() {
  static const dtrain::ProfilerRanges ranges = {&nvtxRangePushA, &nvtxRangePop};
  return &ranges;
}

bool dtrain_nccl_lets_ranks_share_gpus() { return loaded_version() >= NCCL_VERSION(2, 30, 0); }

dtrain::comm::Group* dtrain_make_nccl_group(const dtrain::comm::DeviceGroupRequest& request) {
  // NCCL reads these when it is used first. Groups of a mesh run beside each other: in one order everywhere.
  if (orders_launches()) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  // The order of calls must not wait for peers: a communicator's connections are made with it, not when an
  // algorithm is first used.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  if (request.shares_devices) {
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    setenv("NCCL_MAX_CTAS", "4",
           0);  // the kernels of all ranks there must run at once: each waits for others
  }
  return std::make_unique<dtrain::comm::NcclGroup>(request, loaded_extras()).release();
}

}  // extern "C"
