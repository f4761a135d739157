#pragma once

#include <string>
#include <vector>

#include "doctor/finding.hpp"

namespace dtrain::doctor {

/// What the CUDA driver shows to this process.
struct GpuFacts {
  bool driver = false;             ///< libcuda.so.1 is there.
  std::vector<std::string> uuids;  ///< Of the GPUs, in CUDA's order.
};

GpuFacts look_at_gpus();

/// Of this rank's node. `wanted`: the job is to run on GPUs.
Finding judge_driver(const GpuFacts& facts, bool wanted);

/// Whether two ranks of a node would use one GPU.
std::vector<Finding> judge_gpus(const topology::Cluster& cluster, bool wanted);

}  // namespace dtrain::doctor
