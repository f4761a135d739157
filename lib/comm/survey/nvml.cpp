#include "comm/survey/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>

namespace dtrain::comm {
namespace {

// NVML's binary interface, of which a machine that compiles dtrain need not have the header.
constexpr int kSuccess = 0;
constexpr unsigned kMostLinks = 18;
constexpr int kLinkToSwitch = 2;  // nvmlIntNvLinkDeviceType_t
constexpr int kSmClock = 1;       // nvmlClockType_t
constexpr int kMemoryClock = 2;
constexpr int kOnDie = 0;  // nvmlTemperatureSensors_t
using Device = void*;
struct PciInfo {
  std::array<char, 16> old_bus_id;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  std::array<char, 32> bus_id;
};

/// The functions that are needed. The library stays open: the driver does not like to be closed.
class Library {
 public:
  explicit Library(const std::string& name) : handle_(::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
    if (handle_ == nullptr) return;
    find(init_, "nvmlInit_v2");
    find(count_, "nvmlDeviceGetCount_v2");
    find(device_, "nvmlDeviceGetHandleByIndex_v2");
    find(uuid_, "nvmlDeviceGetUUID");
    find(pci_, "nvmlDeviceGetPciInfo_v3");
    find(link_state_, "nvmlDeviceGetNvLinkState");
    find(link_peer_, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    find(link_kind_, "nvmlDeviceGetNvLinkRemoteDeviceType");
    find(by_uuid_, "nvmlDeviceGetHandleByUUID");
    find(name_, "nvmlDeviceGetName");
    find(clock_, "nvmlDeviceGetClockInfo");
    find(power_, "nvmlDeviceGetPowerUsage");
    find(temperature_, "nvmlDeviceGetTemperature");
  }

  std::optional<GpuState> state(const std::string& uuid) const {
    Device device = nullptr;
    if (!complete_ || handle_ == nullptr || init_() != kSuccess ||
        by_uuid_(uuid.c_str(), &device) != kSuccess)
      return std::nullopt;
    std::array<char, 96> name{};
    if (name_(device, name.data(), static_cast<unsigned>(name.size())) != kSuccess) return std::nullopt;
    GpuState state{.name = name.data()};
    unsigned milliwatts = 0;
    if (clock_(device, kSmClock, &state.sm_mhz) != kSuccess) state.sm_mhz = 0;
    if (clock_(device, kMemoryClock, &state.memory_mhz) != kSuccess) state.memory_mhz = 0;
    if (power_(device, &milliwatts) == kSuccess) state.watts = milliwatts * 1e-3;
    if (temperature_(device, kOnDie, &state.celsius) != kSuccess) state.celsius = 0;
    return state;
  }

  std::vector<Device> devices() const {
    std::vector<Device> found;
    unsigned count = 0;
    if (!complete_ || handle_ == nullptr || init_() != kSuccess || count_(&count) != kSuccess) return found;
    for (unsigned index = 0; index < count; ++index) {
      Device device = nullptr;
      if (device_(index, &device) == kSuccess) found.push_back(device);
    }
    return found;
  }

  std::string uuid(Device device) const {
    std::array<char, 96> text{};
    return uuid_(device, text.data(), static_cast<unsigned>(text.size())) == kSuccess ? text.data() : "";
  }

  std::optional<PciInfo> pci(Device device) const {
    PciInfo info{};
    return pci_(device, &info) == kSuccess ? std::optional(info) : std::nullopt;
  }

  bool has_link(Device device, unsigned link) const {
    int active = 0;
    return link_state_(device, link, &active) == kSuccess && active == 1;
  }
  bool link_passes_switch(Device device, unsigned link) const {
    int kind = 0;
    return link_kind_(device, link, &kind) == kSuccess && kind == kLinkToSwitch;
  }
  std::optional<PciInfo> link_peer(Device device, unsigned link) const {
    PciInfo info{};
    return link_peer_(device, link, &info) == kSuccess ? std::optional(info) : std::nullopt;
  }

 private:
  template <typename Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(handle_, name));
    complete_ &= function != nullptr;
  }

  void* handle_;
  bool complete_ = true;
  int (*init_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_)(unsigned, Device*) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*pci_)(Device, PciInfo*) = nullptr;
  int (*link_state_)(Device, unsigned, int*) = nullptr;
  int (*link_peer_)(Device, unsigned, PciInfo*) = nullptr;
  int (*link_kind_)(Device, unsigned, int*) = nullptr;
  int (*by_uuid_)(const char*, Device*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*clock_)(Device, int, unsigned*) = nullptr;
  int (*power_)(Device, unsigned*) = nullptr;
  int (*temperature_)(Device, int, unsigned*) = nullptr;
};

bool same_place(const PciInfo& a, const PciInfo& b) {
  return a.domain == b.domain && a.bus == b.bus && a.device == b.device;
}

/// As the kernel has it; -1 where it does not know.
int numa_node_of(const PciInfo& pci) {
  std::ifstream file(
      fmt::format("/sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.0/numa_node", pci.domain, pci.bus, pci.device));
  int node = -1;
  file >> node;
  return file ? node : -1;
}

}  // namespace

std::string GpuState::in_words() const {
  return fmt::format("{} at {} MHz, memory {} MHz, {:.1f} W, {} C", name, sm_mhz, memory_mhz, watts, celsius);
}

std::optional<GpuState> read_gpu_state(const std::string& uuid, const std::string& library) {
  return Library(library).state(uuid);
}

std::vector<topology::Gpu> read_gpus(const std::string& library) {
  const Library nvml(library);
  const std::vector<Device> devices = nvml.devices();
  std::vector<PciInfo> places;
  for (Device device : devices) places.push_back(nvml.pci(device).value_or(PciInfo{}));
  std::vector<topology::Gpu> gpus;
  for (std::size_t self = 0; self < devices.size(); ++self) {
    topology::Gpu gpu = {
        .uuid = nvml.uuid(devices[self]), .numa_node = numa_node_of(places[self]), .nvlinks = {}};
    for (unsigned link = 0; link < kMostLinks; ++link) {
      if (!nvml.has_link(devices[self], link)) continue;
      if (nvml.link_passes_switch(devices[self], link)) {
        gpu.nvlinks.push_back(static_cast<int>(self));
      } else if (const auto peer = nvml.link_peer(devices[self], link)) {
        const auto place =
            std::ranges::find_if(places, [&](const PciInfo& p) { return same_place(p, *peer); });
        if (place != places.end()) gpu.nvlinks.push_back(static_cast<int>(place - places.begin()));
      }
    }
    std::ranges::sort(gpu.nvlinks);
    gpu.nvlinks.erase(std::unique(gpu.nvlinks.begin(), gpu.nvlinks.end()), gpu.nvlinks.end());
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace dtrain::comm
