#include "comm/survey/hardware.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "comm/survey/nvml.hpp"
#include "core/counted.hpp"

namespace dtrain::comm {
namespace {

struct Destroy {
  void operator()(hwloc_topology* machine) const { hwloc_topology_destroy(machine); }
};
using Machine = std::unique_ptr<hwloc_topology, Destroy>;

Machine load(bool with_devices) {
  hwloc_topology_t machine = nullptr;
  if (hwloc_topology_init(&machine) != 0) return nullptr;
  Machine owned(machine);
  if (with_devices) hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // Cores outside this process's mask count too: they are other ranks'.
  hwloc_topology_set_flags(machine, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(machine) != 0) return nullptr;
  return owned;
}

std::vector<int> numbers_in(hwloc_const_bitmap_t set) {
  std::vector<int> numbers;
  if (set == nullptr || hwloc_bitmap_weight(set) < 0) return numbers;
  for (int number = hwloc_bitmap_first(set); number >= 0; number = hwloc_bitmap_next(set, number)) {
    numbers.push_back(number);
  }
  return numbers;
}

std::optional<Hardware::Kind> kind_of(const hwloc_obj& device) {
  switch (device.attr->osdev.type) {
    case HWLOC_OBJ_OSDEV_NETWORK:
      return Hardware::Kind::network;
    case HWLOC_OBJ_OSDEV_OPENFABRICS:
      return Hardware::Kind::fabric;
    default:
      return std::nullopt;  // storage; GPUs are asked of their driver, which knows their links
  }
}

int numa_node_near(hwloc_topology* machine, hwloc_obj* device) {
  const std::vector<int> nodes = numbers_in(hwloc_get_non_io_ancestor_obj(machine, device)->nodeset);
  return nodes.size() == 1 ? nodes[0] : -1;
}

}  // namespace

Hardware read_hardware(bool with_devices) {
  Hardware hardware;
  const Machine machine = load(with_devices);
  if (!machine) return hardware;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(machine.get(), HWLOC_OBJ_NUMANODE, node));) {
    hardware.numa_nodes.push_back({static_cast<int>(node->os_index), numbers_in(node->cpuset)});
  }
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(machine.get(), device));) {
    if (const auto kind = kind_of(*device)) {
      hardware.devices.push_back({*kind, device->name, numa_node_near(machine.get(), device)});
    }
  }
  if (with_devices) hardware.gpus = read_gpus();
  return hardware;
}

int Hardware::numa_node_of(const std::vector<int>& cpus) const {
  for (const NumaNode& node : numa_nodes) {
    if (!cpus.empty() && std::ranges::includes(node.cpus, cpus)) return node.index;
  }
  return -1;
}

std::string Hardware::to_string() const {
  std::vector<std::string> nodes;
  for (const NumaNode& node : numa_nodes) nodes.push_back(number_list(node.cpus));
  std::string text = fmt::format("{} ({})", counted(static_cast<std::int64_t>(nodes.size()), "NUMA node"),
                                 fmt::join(nodes, "; "));
  constexpr std::array kNames = {"network", "fabric"};
  for (const Device& device : devices) {
    text += fmt::format("; {} {}", kNames[static_cast<std::size_t>(device.kind)], device.name);
    if (device.numa_node >= 0) text += fmt::format(" (NUMA {})", device.numa_node);
  }
  const std::vector<int> island = topology::islands(gpus);
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    text += fmt::format("; GPU {} {} (", gpu, gpus[gpu].uuid);
    if (gpus[gpu].numa_node >= 0) text += fmt::format("NUMA {}, ", gpus[gpu].numa_node);
    text += fmt::format("island {})", island[gpu]);
  }
  return text;
}

}  // namespace dtrain::comm
