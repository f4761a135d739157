#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "comm/communicator.hpp"
#include "comm/discover.hpp"
#include "core/error.hpp"

namespace dtrain::train {

/// What a rank computes on.
struct RankDevice {
  at::Device device = at::kCPU;
  comm::LocalDevice place;  ///< As the cluster's description has it.
};

/// Whether `--device` takes `name`: auto (the CPU), cpu, cuda, or what an extension of LibTorch that is
/// loaded into this process calls its device.
bool is_device_name(const std::string& name);

/// Loads LibTorch's part for CUDA, which lies beside its others. Nothing links it: a process with it takes
/// four times the memory. Throws Error (exit code 2) where it is missing or cannot be loaded.
void load_libtorch_cuda();

/// Opens it: of a node's GPUs each of its ranks gets its own, near its cores. From then on LibTorch computes
/// there where it is asked for this device. Collective over `world`, all ranks asking for the same. Throws
/// Error (exit code 2) that says what is missing.
RankDevice open_device(const std::string& name, const comm::Communicator& world);

/// What a user can do about LibTorch's `what`, that a device has no room for what it was asked for.
Error out_of_memory(const std::string& what);

}  // namespace dtrain::train
