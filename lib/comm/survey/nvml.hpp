#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/placement.hpp"

namespace dtrain::comm {

/// The GPUs of this node in the order of their PCI addresses, as the driver's management library (NVML) tells
/// of them, whichever of them this process may use: with their NUMA nodes and the links among them. Empty
/// where there is no such library, or it finds none. Source: NVML API Reference Guide, sections Device
/// Queries and NvLink Methods.
std::vector<topology::Gpu> read_gpus(const std::string& library = "libnvidia-ml.so.1");

/// What one of them does at a moment; 0 where the driver does not say.
struct GpuState {
  std::string name;     ///< `NVIDIA H200`.
  unsigned sm_mhz = 0;  ///< Clocks.
  unsigned memory_mhz = 0;
  double watts = 0;
  unsigned celsius = 0;

  std::string in_words() const;  ///< `NVIDIA H200 at 1980 MHz, memory 3201 MHz, 540.2 W, 61 C`.
};

/// Nothing where NVML does not know the GPU.
std::optional<GpuState> read_gpu_state(const std::string& uuid,
                                       const std::string& library = "libnvidia-ml.so.1");

}  // namespace dtrain::comm
