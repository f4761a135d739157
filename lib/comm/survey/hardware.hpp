#pragma once

#include <string>
#include <vector>

#include "topology/placement.hpp"

namespace dtrain::comm {

/// What a node is made of, as hwloc sees it (which reads HWLOC_XMLFILE and HWLOC_SYNTHETIC: a machine that
/// one has not got).
struct Hardware {
  struct NumaNode {
    int index = 0;
    std::vector<int> cpus;  ///< Ascending; also those outside this process's mask.
  };
  enum class Kind { network, fabric };
  struct Device {
    Kind kind = Kind::network;
    std::string name;    ///< `eth0`, `mlx5_0`.
    int numa_node = -1;  ///< -1 where it is as near to several.
  };
  std::vector<NumaNode> numa_nodes;
  std::vector<Device> devices;
  std::vector<topology::Gpu> gpus;  ///< As read_gpus() has them.

  /// The NUMA node that holds all of `cpus`; -1 when they span several or none holds them.
  int numa_node_of(const std::vector<int>& cpus) const;

  /// `2 NUMA nodes (0-3; 4-7); network eth0 (NUMA 0); GPU 0 GPU-5f (NUMA 0, island 0)`: on one line.
  std::string to_string() const;
};

/// Of this node. Without any NUMA node where hwloc cannot tell. Devices take hwloc a while.
Hardware read_hardware(bool with_devices);

}  // namespace dtrain::comm
