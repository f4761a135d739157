#pragma once

#include <cstdint>

#include "comm/emulation/stretched_compute.hpp"
#include "topology/fabric.hpp"

namespace dtrain::comm {

/// Makes this rank compute as slowly as the emulated one.
class SlowCompute final : public StretchedCompute {
 public:
  /// Both are borrowed. `rank`: in MPI_COMM_WORLD at the start.
  SlowCompute(const topology::Fabric& fabric, int rank, SpanSink& sink)
      : StretchedCompute(sink), fabric_(fabric), rank_(rank) {}

  void begin_step(std::int64_t step) { stretch(fabric_.slowness(rank_, step)); }

 private:
  const topology::Fabric& fabric_;
  int rank_;
};

}  // namespace dtrain::comm
