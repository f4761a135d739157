#pragma once

#include <string>
#include <vector>

#include "topology/placement.hpp"

namespace dtrain::comm {

/// The GPUs of this node in the order of their PCI addresses, as the driver's management library (NVML) tells
/// of them, whichever of them this process may use: with their NUMA nodes and the links among them. Empty
/// where there is no such library, or it finds none. Source: NVML API Reference Guide, sections Device
/// Queries and NvLink Methods.
std::vector<topology::Gpu> read_gpus(const std::string& library = "libnvidia-ml.so.1");

}  // namespace dtrain::comm
