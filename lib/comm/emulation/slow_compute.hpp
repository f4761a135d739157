#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/span_sink.hpp"
#include "topology/fabric.hpp"

namespace dtrain::comm {

/// Makes forward and backward of this rank take as long as on the emulated one, by sleeping after them. Spans
/// pass through to the sink behind it.
class SlowCompute final : public PassingSpanSink {
 public:
  /// Both are borrowed. `rank`: in MPI_COMM_WORLD at the start.
  SlowCompute(const topology::Fabric& fabric, int rank, SpanSink& sink)
      : PassingSpanSink(sink), fabric_(fabric), rank_(rank) {}

  void begin_step(std::int64_t step) { slowness_ = fabric_.slowness(rank_, step); }

  void enter(Phase phase, std::string_view name) override;
  void leave() override;

 private:
  struct Open {
    Phase phase = Phase::other;
    std::int64_t start_ns = 0;
  };
  const topology::Fabric& fabric_;
  int rank_;
  double slowness_ = 1;
  std::array<Open, 32> open_{};  // deeper spans are part of these
  std::size_t depth_ = 0;
};

}  // namespace dtrain::comm
