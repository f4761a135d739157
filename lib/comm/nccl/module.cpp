// What the program finds in the shared module by name; comm/cuda_module.cpp is the other side.
#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <memory>
#include <string>

#include "comm/cuda_module.hpp"
#include "comm/nccl/cuda_check.hpp"
#include "comm/nccl/nccl_group.hpp"

namespace {

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

int loaded_version() {
  int code = 0;
  return ncclGetVersion(&code) == ncclSuccess ? code : 0;
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

dtrain::comm::Group* dtrain_make_nccl_group(const dtrain::comm::NcclGroupRequest& request) {
  return std::make_unique<dtrain::comm::NcclGroup>(request).release();
}

}  // extern "C"
