#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "comm/device/nccl/nccl_channel.hpp"
#include "comm/device/nccl/nccl_extras.hpp"
#include "comm/group.hpp"

namespace dtrain::comm {

/// Zeros on the current device. Throws Error.
std::unique_ptr<SharedBuffer> device_memory(std::size_t bytes);

/// The same in memory that NCCL moves without copies of its own where links allow that. `compute` is the
/// stream that uses it besides the channel's. Its end waits for what both have been given, but not for ever.
/// May outlive the channel. Throws Error.
std::unique_ptr<SharedBuffer> registered_memory(std::size_t bytes, const NcclExtras& extras,
                                                const std::shared_ptr<NcclChannel>& channel,
                                                cudaStream_t compute);

}  // namespace dtrain::comm
