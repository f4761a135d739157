#include "train/device.hpp"

#include <ATen/Context.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <vector>

#include "comm/cuda_module.hpp"
#include "comm/nvml.hpp"
#include "core/error.hpp"
#include "kernels/device_kernels.hpp"
#include "topology/placement.hpp"

namespace dtrain::train {
namespace {

/// The node's GPUs that this process may use, in CUDA's order, with what NVML knows of each.
std::vector<topology::Gpu> visible_gpus(const comm::CudaModule& module) {
  const auto all = comm::read_gpus();
  std::vector<topology::Gpu> visible;
  for (const std::string& uuid : module.device_uuids()) {
    const auto known = std::ranges::find(all, uuid, &topology::Gpu::uuid);
    visible.push_back(known != all.end() ? *known : topology::Gpu{.uuid = uuid, .nvlinks = {}});
  }
  return visible;
}

/// The GPU of this rank among its node's.
std::size_t own_gpu(const std::vector<topology::Gpu>& gpus, const comm::Communicator& world) {
  const auto cluster = comm::survey_cluster(world, comm::affinity_mask());
  const auto& me = cluster.ranks[static_cast<std::size_t>(world.rank())];
  std::vector<int> numa_nodes(static_cast<std::size_t>(cluster.local_size(me.node)));
  for (const auto& place : cluster.ranks) {
    if (place.node == me.node) numa_nodes[static_cast<std::size_t>(place.local_rank)] = place.numa_node;
  }
  return static_cast<std::size_t>(
      topology::deal_gpus(gpus, numa_nodes)[static_cast<std::size_t>(me.local_rank)]);
}

/// Stays open: what is on the GPU may outlive a job.
const comm::CudaModule& cuda_module() {
  static const comm::CudaModule module;
  return module;
}

RankDevice open_cuda(const comm::Communicator& world) {
  const auto& module = cuda_module();
  load_libtorch_cuda();
  const auto gpus = visible_gpus(module);
  require(!gpus.empty(), "the driver is there, but no GPU that this process may use",
          {.subject = "--device cuda",
           .advice = "look at nvidia-smi and at CUDA_VISIBLE_DEVICES, or use --device cpu",
           .code = ExitCode::usage});
  const auto index = own_gpu(gpus, world);
  require(at::hasCUDA(), "LibTorch finds no GPU",
          {.subject = "--device cuda",
           .advice = "look at nvidia-smi: its driver may be too old, or use --device cpu",
           .code = ExitCode::usage});
  at::globalContext().setBenchmarkCuDNN(true);   // an algorithm per shape, tried once
  at::globalContext().setAllowTF32CuDNN(false);  // fp32 is fp32, as on the CPU
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(index));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  const auto entry = reinterpret_cast<kernels::DeviceKernelsEntry>(module.symbol("dtrain_device_kernels"));
  kernels::use_device_kernels(entry());
  return {.device = device,
          .place = {.gpu = static_cast<int>(index),
                    .uuid = gpus[index].uuid,
                    .island = topology::islands(gpus)[index]}};
}

}  // namespace

void load_libtorch_cuda() {
  Dl_info where{};
  const bool known = dladdr(reinterpret_cast<const void*>(&at::globalContext), &where) != 0;
  const auto folder = known ? std::filesystem::path(where.dli_fname).parent_path() : std::filesystem::path();
  const std::string file = (folder / "libtorch_cuda.so").string();
  if (dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  const char* const why = dlerror();
  throw usage_error(fmt::format("LibTorch's part for CUDA cannot be loaded: {}", why != nullptr ? why : file),
                    "--device cuda", "install a LibTorch with CUDA (jobs/setup.sh), or use --device cpu");
}

Error out_of_memory(const std::string& what) {
  const auto sentence = what.substr(0, what.find_first_of("\n"));
  return {sentence,
          {.subject = "--device",
           .advice = "take a smaller --global-batch, more --micro-batches, --recompute full or more ranks"}};
}

bool is_device_name(const std::string& name) {
  if (name == "auto" || name == "cpu" || name == "cuda") return true;
  return c10::is_privateuse1_backend_registered() && name == c10::get_privateuse1_backend();
}

RankDevice open_device(const std::string& name, const comm::Communicator& world) {
  if (name == "auto" || name == "cpu") return {};
  if (name == "cuda") return open_cuda(world);
  return {.device = at::Device(at::kPrivateUse1, 0), .place = {}};
}

}  // namespace dtrain::train
