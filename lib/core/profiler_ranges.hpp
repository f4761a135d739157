#pragma once

namespace dtrain {

/// How a profiler of a device is told what the compute thread does: NVTX's ranges, which nest as spans do.
/// Both cost next to nothing while no profiler listens.
struct ProfilerRanges {
  int (*push)(const char* name);
  int (*pop)();
};

}  // namespace dtrain
