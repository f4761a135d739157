#include "comm/device/cuda_module.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "core/error.hpp"

namespace dtrain::comm {
namespace {

constexpr const char* kFile = "libdtrain_cuda.so";

std::string find_module() {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  for (const char* folder : {".", "../lib", "../../lib"}) {
    const std::filesystem::path candidate = program.parent_path() / folder / kFile;
    if (std::filesystem::exists(candidate, ignored)) return candidate.lexically_normal();
  }
  return kFile;
}

std::string last_dl_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown reason";
}

}  // namespace

std::string CudaModule::why_no_driver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return last_dl_error();
  dlclose(driver);
  return {};
}

CudaLibraries CudaModule::libraries(const std::string& path) {
  CudaLibraries found;
  void* const module = dlopen((path.empty() ? find_module() : path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    found.problem = last_dl_error();
    return found;
  }
  using Describe = const char* (*)(int);
  const auto describe = reinterpret_cast<Describe>(dlsym(module, "dtrain_cuda_version"));
  if (describe == nullptr) {
    found.problem = fmt::format("{} lacks dtrain_cuda_version", kFile);
    return found;
  }
  int which = 0;
  for (std::string* text :
       {&found.nccl_built, &found.nccl_loaded, &found.runtime_built, &found.runtime_loaded, &found.driver}) {
    *text = describe(which++);
  }
  return found;
}

CudaModule::CudaModule(const std::string& path) {
  const std::string reason = why_no_driver();
  if (!reason.empty()) {
    throw usage_error(fmt::format("no CUDA driver: {}", reason), "--device cuda",
                      "run where there is a GPU, or use --device cpu");
  }
  const std::string file = path.empty() ? find_module() : path;
  handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const std::string why = last_dl_error();
    const bool lacks_nccl = why.find("libnccl") != std::string::npos;
    throw usage_error(fmt::format("the CUDA module cannot be opened: {}", why), "--device cuda",
                      lacks_nccl ? "install NCCL 2, or let LD_LIBRARY_PATH lead to it, or use --device cpu"
                                 : "build with DTRAIN_CUDA=ON, or use --device cpu");
  }
  using Check = const char* (*)();
  const char* const problem = reinterpret_cast<Check>(symbol("dtrain_cuda_problem"))();
  if (problem == nullptr) return;
  throw usage_error(problem, description(),
                    "let LD_LIBRARY_PATH lead to one libnccl only, or use --device cpu");
}

CudaModule::~CudaModule() {
  if (handle_ != nullptr) dlclose(handle_);
}

void* CudaModule::symbol(const char* name) const {
  void* const address = dlsym(handle_, name);
  require(
      address != nullptr, fmt::format("{} lacks {}", kFile, name),
      {.subject = "--device cuda", .advice = "build program and module together", .code = ExitCode::usage});
  return address;
}

std::string CudaModule::description() const {
  using Describe = const char* (*)();
  return reinterpret_cast<Describe>(symbol("dtrain_nccl_description"))();
}

bool CudaModule::lets_ranks_share_devices() const {
  using Shares = bool (*)();
  return reinterpret_cast<Shares>(symbol("dtrain_nccl_lets_ranks_share_gpus"))();
}

int CudaModule::device_count() const {
  using Count = int (*)();
  return reinterpret_cast<Count>(symbol("dtrain_cuda_device_count"))();
}

std::string CudaModule::device_problem() const {
  using Problem = const char* (*)();
  return reinterpret_cast<Problem>(symbol("dtrain_cuda_device_problem"))();
}

DeviceMemory CudaModule::memory(int device) const {
  using Memory = DeviceMemory (*)(int);
  return reinterpret_cast<Memory>(symbol("dtrain_cuda_device_memory"))(device);
}

std::vector<std::string> CudaModule::device_uuids() const {
  using Uuid = const char* (*)(int);
  const auto uuid_of = reinterpret_cast<Uuid>(symbol("dtrain_cuda_device_uuid"));
  std::vector<std::string> uuids;
  for (int device = 0; device < device_count(); ++device) {
    const char* const uuid = uuid_of(device);
    require(uuid != nullptr, fmt::format("CUDA does not describe GPU {}", device),
            {.subject = "--device cuda", .advice = "look at nvidia-smi", .code = ExitCode::usage});
    uuids.emplace_back(uuid);
  }
  return uuids;
}

std::string CudaModule::device_bus(int device) const {
  using Bus = const char* (*)(int);
  const char* const bus = reinterpret_cast<Bus>(symbol("dtrain_cuda_device_bus"))(device);
  return bus != nullptr ? bus : "";
}

std::unique_ptr<Group> CudaModule::make_group(const DeviceGroupRequest& request) const {
  using Make = Group* (*)(const DeviceGroupRequest&);
  return std::unique_ptr<Group>(reinterpret_cast<Make>(symbol("dtrain_make_nccl_group"))(request));
}

}  // namespace dtrain::comm
