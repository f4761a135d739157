#include "doctor/gpus.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace dtrain::doctor {
namespace {

using Uuid = std::array<unsigned char, 16>;

std::string uuid_in_words(const Uuid& uuid) {
  std::string text = "GPU-";
  for (const unsigned char byte : uuid) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

// The driver's own interface: a process that links CUDA's runtime takes four times the memory.
GpuFacts look_at_gpus() {
  GpuFacts facts;
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return facts;
  facts.driver = true;
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  const auto uuid_of = reinterpret_cast<int (*)(Uuid*, int)>(::dlsym(driver, "cuDeviceGetUuid"));
  int gpus = 0;
  if (init != nullptr && count != nullptr && get != nullptr && uuid_of != nullptr && init(0) == 0 &&
      count(&gpus) == 0) {
    for (int i = 0; i < gpus; ++i) {
      int device = 0;
      Uuid uuid{};
      if (get(&device, i) == 0 && uuid_of(&uuid, device) == 0) facts.uuids.push_back(uuid_in_words(uuid));
    }
  }
  return facts;  // the driver stays: it does not like to be closed
}

Finding judge_driver(const GpuFacts& facts, bool wanted) {
  constexpr const char* kWhat = "GPUs";
  if (!facts.uuids.empty()) return good(kWhat, fmt::format("{} on a node", facts.uuids.size()));
  const std::string text =
      facts.driver ? "none, though there is a driver (libcuda.so.1)" : "none (no libcuda.so.1)";
  if (!wanted) return good(kWhat, text);
  return problem(
      kWhat, text,
      "ask for GPUs (srun --gpus-per-node), start the container with --gpus all, or use --device cpu");
}

std::vector<Finding> judge_gpus(const topology::Cluster& cluster, bool wanted) {
  constexpr const char* kRemedy =
      "start one rank per GPU: those that share one compute in turn, and without NCCL 2.30 exchange through "
      "the CPU's memory";
  std::vector<Finding> findings;
  for (const auto& sentence : cluster.shared_gpus()) {
    findings.push_back(note("GPUs", wanted ? sentence : sentence + " with --device cuda", kRemedy));
  }
  return findings;
}

}  // namespace dtrain::doctor
