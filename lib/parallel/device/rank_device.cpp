#include "parallel/device/rank_device.hpp"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <vector>

#include "comm/survey/nvml.hpp"
#include "core/error.hpp"
#include "kernels/device_kernels.hpp"
#include "topology/placement.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kLeastFree = 0.02;  // of a GPU's memory: a context alone takes about half a gigabyte

/// The node's GPUs as NVML lists them; where NVML does not list this process's, those only.
std::vector<topology::Gpu> gpus_of_node(const std::vector<std::string>& visible) {
  auto all = comm::read_gpus();
  const bool knows_all = std::ranges::all_of(visible, [&all](const std::string& uuid) {
    return std::ranges::find(all, uuid, &topology::Gpu::uuid) != all.end();
  });
  if (knows_all) return all;
  all.clear();
  for (const auto& uuid : visible) all.push_back({.uuid = uuid, .nvlinks = {}});
  return all;
}

/// Of the GPUs that this rank sees, the number of its own. Ranks of a node that see the same ones deal them
/// out; a launcher may as well show each rank another.
std::size_t own_gpu(const std::vector<std::string>& visible, const std::vector<topology::Gpu>& of_node,
                    const comm::Communicator& world) {
  const auto cluster = comm::discover_cluster(world, comm::affinity_mask());
  const auto seen = world.all_gather(fmt::format("{}", fmt::join(visible, ",")));
  const auto& me = cluster.ranks[static_cast<std::size_t>(world.rank())];
  std::vector<int> numa_nodes;  // of the ranks that deal
  std::size_t mine = 0;
  for (const auto& place : cluster.ranks) {
    const auto& theirs = seen[static_cast<std::size_t>(place.rank)];
    if (place.node != me.node || theirs != seen[static_cast<std::size_t>(me.rank)]) continue;
    if (place.rank == me.rank) mine = numa_nodes.size();
    numa_nodes.push_back(place.numa_node);
  }
  std::vector<topology::Gpu> dealt;
  for (const auto& uuid : visible) dealt.push_back(*std::ranges::find(of_node, uuid, &topology::Gpu::uuid));
  return static_cast<std::size_t>(topology::deal_gpus(dealt, numa_nodes)[mine]);
}

/// Stays open: what is on the GPU may outlive a job.
const comm::CudaModule& cuda_module() {
  static const comm::CudaModule module;
  return module;
}

/// Opens the part of the module that uses LibTorch's for CUDA, which must be loaded. It is a file of its own,
/// for doctor looks at the module where that LibTorch is not.
void open_graphs(const comm::CudaModule& module, RankDevice& device) {
  Dl_info where{};
  const bool known = dladdr(module.symbol("dtrain_device_kernels"), &where) != 0;
  const auto folder = known ? std::filesystem::path(where.dli_fname).parent_path() : std::filesystem::path();
  void* const graphs = dlopen((folder / "libdtrain_cuda_graphs.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const entry = graphs != nullptr ? dlsym(graphs, "dtrain_cuda_graphs") : nullptr;
  if (entry == nullptr) {
    const char* const why = dlerror();
    device.no_graphs = why != nullptr ? why : "libdtrain_cuda_graphs.so cannot be opened";
    return;
  }
  device.graphs = reinterpret_cast<DeviceGraphsEntry>(entry)();
}

RankDevice open_cuda(const comm::Communicator& world) {
  const auto& module = cuda_module();
  load_libtorch_cuda();
  const auto problem = module.device_problem();
  require(problem.empty(), problem,
          {.subject = "--device cuda",
           .advice = "look at nvidia-smi and at CUDA_VISIBLE_DEVICES, or use --device cpu",
           .code = ExitCode::usage});
  const auto visible = module.device_uuids();
  const auto gpus = gpus_of_node(visible);
  const auto index = own_gpu(visible, gpus, world);
  const auto number = std::ranges::find(gpus, visible[index], &topology::Gpu::uuid) - gpus.begin();
  free_unused_memory(
      at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index)));  // of an earlier part of the run
  require_free_memory(visible[index], module.memory(static_cast<int>(index)));
  require(at::hasCUDA(), "LibTorch finds no GPU",
          {.subject = "--device cuda",
           .advice = "look at nvidia-smi: its driver may be too old, or use --device cpu",
           .code = ExitCode::usage});
  at::globalContext().setBenchmarkCuDNN(true);  // an algorithm per shape, tried once
  use_tf32(false);                              // fp32 is fp32, as on the CPU
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(index));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  const c10::Stream stream = compute_stream(device);
  c10::impl::VirtualGuardImpl(at::kCUDA).exchangeStream(stream);
  const auto entry = reinterpret_cast<kernels::DeviceKernelsEntry>(module.symbol("dtrain_device_kernels"));
  kernels::use_device_kernels(entry());
  using Ranges = const ProfilerRanges* (*)();
  RankDevice opened{.name = device.str(),
                    .index = device.index(),
                    .place = {.gpu = static_cast<int>(number),
                              .uuid = visible[index],
                              .bus = module.device_bus(static_cast<int>(index)),
                              .island = topology::islands(gpus)[static_cast<std::size_t>(number)]},
                    .transport = &module,
                    .ranges = reinterpret_cast<Ranges>(module.symbol("dtrain_profiler_ranges"))(),
                    .stream = stream.native_handle()};
  open_graphs(module, opened);
  return opened;
}

const comm::DeviceTransport* extension_transport = nullptr;
const DeviceGraphs* extension_graphs = nullptr;

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

void use_tf32(bool wanted) {
  at::globalContext().setAllowTF32CuBLAS(wanted);
  at::globalContext().setAllowTF32CuDNN(wanted);
}

void compute_deterministically() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // read when cuBLAS is used first
  at::globalContext().setBenchmarkCuDNN(false);     // which algorithm is fastest may be another each time
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);  // no code reads it
}

void require_free_memory(const std::string& gpu, const comm::DeviceMemory& memory) {
  const auto gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / 0x1p30; };
  require(static_cast<double>(memory.free_bytes) >= kLeastFree * static_cast<double>(memory.total_bytes),
          fmt::format("{} has {:.1f} of its {:.1f} GiB left: other processes have the rest", gpu,
                      gib(memory.free_bytes), gib(memory.total_bytes)),
          {.subject = "--device cuda",
           .advice = "look at nvidia-smi for whose they are, or name another with CUDA_VISIBLE_DEVICES"});
}

void free_unused_memory(at::Device device) {
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator != nullptr) allocator->emptyCache();
}

c10::Stream compute_stream(at::Device device) {
  static std::map<std::string, c10::Stream> streams;  // as CUDA's own pool of them, the process's
  const auto known = streams.find(device.str());
  if (known != streams.end()) return known->second;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return streams.emplace(device.str(), stream).first->second;
}

void use_extension_transport(const comm::DeviceTransport* transport) { extension_transport = transport; }
void use_extension_graphs(const DeviceGraphs* graphs) { extension_graphs = graphs; }

bool is_device_name(const std::string& name) {
  if (name == "auto" || name == "cpu" || name == "cuda") return true;
  return c10::is_privateuse1_backend_registered() && name == c10::get_privateuse1_backend();
}

std::string settled_device(const std::string& name, const comm::Communicator& world) {
  // A rank that takes a lost rank's place does not know yet what the others have settled.
  const std::string wished = world.broadcast(name, 0);
  if (wished != "auto") return wished;
  bool has_gpu = comm::CudaModule::why_no_driver().empty();
  try {
    has_gpu = has_gpu && cuda_module().device_problem().empty();
  } catch (const Error&) {
    has_gpu = false;  // a driver without the module, or without a libnccl for it
  }
  return world.min(static_cast<std::int64_t>(has_gpu)) == 1 ? "cuda" : "cpu";
}

RankDevice open_device(const std::string& name, const comm::Communicator& world) {
  if (name == "auto" || name == "cpu") return {};
  if (name == "cuda") return open_cuda(world);
  return {.name = at::Device(at::kPrivateUse1, 0).str(),
          .index = 0,
          .place = {},
          .transport = extension_transport,
          .graphs = extension_graphs};
}

}  // namespace dtrain::parallel
