#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/span_sink.hpp"

namespace dtrain::comm {

/// Makes forward and backward take `slowness` times as long, by sleeping after them. What they wait for other
/// ranks stays as it is: ranks that are slow must not wait for each other's sleep ever longer. Spans pass
/// through to the sink behind it.
class StretchedCompute : public PassingSpanSink {
 public:
  using PassingSpanSink::PassingSpanSink;

  void enter(Phase phase, std::string_view name) override;
  void leave() override;

 protected:
  void stretch(double slowness) { slowness_ = slowness; }  ///< From here on; 1: not at all.

 private:
  struct Open {
    Phase phase = Phase::other;
    std::int64_t start_ns = 0;
    std::int64_t spared_ns = 0;  // of spans in it that wait, or were stretched themselves
  };
  double slowness_ = 1;
  std::array<Open, 32> open_{};  // deeper spans are part of these
  std::size_t depth_ = 0;
};

}  // namespace dtrain::comm
