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
  if (depth_ < open_.size()) {
    const auto& [phase, start_ns, spared_ns] = open_[depth_];
    const bool computes = phase == Phase::forward || phase == Phase::backward;
    if (computes && slowness_ > 1) {
      const auto computed_ns = static_cast<double>(steady_ns() - start_ns - spared_ns);
      std::this_thread::sleep_for(std::chrono::duration<double, std::nano>((slowness_ - 1) * computed_ns));
    }
    if (depth_ > 0) {
      const bool all = computes || phase == Phase::exposed_communication;
      open_[depth_ - 1].spared_ns += all ? steady_ns() - start_ns : spared_ns;
    }
  }
  PassingSpanSink::leave();
}

}  // namespace dtrain::comm
