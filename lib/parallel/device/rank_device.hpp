#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <string>

#include "comm/device/cuda_module.hpp"
#include "comm/mpi/communicator.hpp"
#include "comm/survey/discover.hpp"
#include "core/profiler_ranges.hpp"
#include "parallel/step/device_graph.hpp"

namespace dtrain::parallel {

/// What a rank computes on.
struct RankDevice {
  std::string name = "cpu";                          ///< As LibTorch writes it, `cuda:0`.
  int index = -1;                                    ///< LibTorch's, among those that this process sees.
  comm::LocalDevice place;                           ///< As the cluster's description has it.
  const comm::DeviceTransport* transport = nullptr;  ///< Between the ranks' devices; null: there is none.
  const ProfilerRanges* ranges = nullptr;            ///< Of the device's profiler; null: it has none.
  void* stream = nullptr;                            ///< See comm::DeviceGroupRequest.
  const DeviceGraphs* graphs = nullptr;              ///< Null: there are none, and `no_graphs` says why.
  std::string no_graphs = "the device has none";
};

/// Whether `--device` takes `name`: auto (GPUs where all ranks have some, else the CPU), cpu, cuda, or what
/// an extension of LibTorch that is loaded into this process calls its device.
bool is_device_name(const std::string& name);

/// What carries messages between the memories of such an extension's devices; null, as at the start: they go
/// through the CPU's. Borrowed; to be called before a run.
void use_extension_transport(const comm::DeviceTransport* transport);
/// The same of what captures the work that such a device is given.
void use_extension_graphs(const DeviceGraphs* graphs);

/// Loads LibTorch's part for CUDA, which lies beside its others. Nothing links it: a process with it takes
/// four times the memory. Throws Error (exit code 2) where it is missing or cannot be loaded.
void load_libtorch_cuda();

/// What `name`, rank 0's, stands for: auto is cuda where every rank has a GPU that works, else cpu; any other
/// name stands for itself. Collective.
std::string settled_device(const std::string& name, const comm::Communicator& world);

/// Opens one that is not auto: of a node's GPUs each of its ranks gets its own, near its cores, or several
/// ranks share one where there are too few. From then on tensors of this device lie there.
/// Collective over `world`; all ranks name the same device. Throws Error (exit code 2) that says what is
/// missing.
RankDevice open_device(const std::string& name, const comm::Communicator& world);

/// Whether LibTorch's products and convolutions of fp32 on GPUs round their factors to TF32, which has 10 of
/// fp32's 23 bits and its exponents; sums stay in fp32. open_device() leaves them exact, whatever LibTorch's
/// own default or environment says. Source: NVIDIA, "A100 Tensor Core GPU Architecture", 2020.
void use_tf32(bool wanted);

/// From here on what LibTorch computes on GPUs has the same bits each time: cuDNN's and cuBLAS's algorithms
/// are chosen by shapes alone, and an operation that LibTorch cannot promise it of is named in a warning. (Of
/// max_pool2d it does not, whose atomic additions meet where windows overlap; those of dtrain's models do
/// not.) To be called before the first operation.
void compute_deterministically();

/// Gives back to the device what LibTorch keeps of its memory for later tensors. Graphs take memory of their
/// own, and the driver does not count as free what LibTorch keeps.
void free_unused_memory(c10::Device device);

/// The stream of this process's compute thread on a device, not the default one: graphs cannot be captured
/// from that. The same each time, because memory that LibTorch keeps is for the stream that it was taken for.
c10::Stream compute_stream(c10::Device device);

/// Throws Error where of a GPU's memory next to nothing is left: other processes have it.
void require_free_memory(const std::string& gpu, const comm::DeviceMemory& memory);

}  // namespace dtrain::parallel
