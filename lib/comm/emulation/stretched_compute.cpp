#include "comm/emulation/stretched_compute.hpp"

#include <chrono>
#include <thread>

#include "core/clock.hpp"

namespace dtrain::comm {

void StretchedCompute::enter(Phase phase, std::string_view name) {
  PassingSpanSink::enter(phase, name);
  if (depth_ < open_.size()) open_[depth_] = {.phase = phase, .start_ns = steady_ns()};
  ++depth_;
}

void StretchedCompute::leave() {
  --depth_;
  if (depth_ < open_.size() && slowness_ > 1) {
    const auto& [phase, start_ns] = open_[depth_];
    if (phase == Phase::forward || phase == Phase::backward) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::nano>(
          (slowness_ - 1) * static_cast<double>(steady_ns() - start_ns)));
    }
  }
  PassingSpanSink::leave();
}

}  // namespace dtrain::comm
