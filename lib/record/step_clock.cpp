#include "record/step_clock.hpp"

#include <utility>

#include "core/clock.hpp"
#include "record/trace_writer.hpp"

namespace dtrain::record {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

PhaseTotals& PhaseTotals::operator+=(const PhaseTotals& other) {
  times += other.times;
  wall_s += other.wall_s;
  bytes_sent += other.bytes_sent;
  bytes_received += other.bytes_received;
  for (std::size_t phase = 0; phase < device_s.size(); ++phase) device_s[phase] += other.device_s[phase];
  return *this;
}

StepClock::StepClock() : mark_ns_(steady_ns()) {}

void StepClock::charge(std::int64_t now_ns) {
  const Phase phase = depth_ == 0 ? Phase::other : open_[(depth_ < kDepth ? depth_ : kDepth) - 1].phase;
  exclusive_ns_[static_cast<std::size_t>(phase)] += now_ns - mark_ns_;
  mark_ns_ = now_ns;
}

void StepClock::enter(Phase phase, std::string_view name) {
  const std::int64_t now_ns = steady_ns();
  charge(now_ns);
  // An overlapping phase is no place where the compute thread can be.
  Phase place = static_cast<std::size_t>(phase) < kExclusivePhases ? phase : Phase::other;
  // A rank that waits for another stage is idle, whatever the wait inside is called.
  const bool waits_for_stage =
      depth_ > 0 && depth_ <= kDepth && open_[depth_ - 1].phase == Phase::pipeline_idle;
  if (waits_for_stage && place == Phase::exposed_communication) place = Phase::pipeline_idle;
  if (depth_ < kDepth) open_[depth_] = {place, name, now_ns};
  ++depth_;
}

void StepClock::leave() {
  const std::int64_t now_ns = steady_ns();
  charge(now_ns);
  if (depth_ == 0) return;
  --depth_;
  auto* const trace = trace_.load(std::memory_order_acquire);
  if (trace != nullptr && depth_ < kDepth) {
    const Open& span = open_[depth_];
    trace->span(span.phase, span.name, span.start_ns, now_ns);
  }
}

void StepClock::overlapped(Phase phase, std::string_view name, std::int64_t start_ns, std::int64_t end_ns) {
  if (phase == Phase::communication)
    communication_ns_.fetch_add(end_ns - start_ns, std::memory_order_relaxed);
  if (phase == Phase::transfer) transfer_ns_.fetch_add(end_ns - start_ns, std::memory_order_relaxed);
  if (auto* const trace = trace_.load(std::memory_order_acquire)) trace->span(phase, name, start_ns, end_ns);
}

void StepClock::on_device(Phase phase, std::string_view name, std::int64_t start_ns, std::int64_t end_ns) {
  device_ns_.at(static_cast<std::size_t>(phase)) += end_ns - start_ns;
  if (auto* const trace = trace_.load(std::memory_order_acquire))
    trace->device_span(phase, name, start_ns, end_ns);
}

void StepClock::moved(std::int64_t bytes_sent, std::int64_t bytes_received) {
  bytes_sent_.fetch_add(bytes_sent, std::memory_order_relaxed);
  bytes_received_.fetch_add(bytes_received, std::memory_order_relaxed);
}

PhaseTotals StepClock::take() {
  charge(steady_ns());
  const auto phase = [this](Phase p) { return seconds(exclusive_ns_[static_cast<std::size_t>(p)]); };
  PhaseTotals totals;
  totals.times = {.data_time_s = phase(Phase::data),
                  .forward_time_s = phase(Phase::forward),
                  .backward_time_s = phase(Phase::backward),
                  .communication_time_s = seconds(communication_ns_.exchange(0, std::memory_order_relaxed)),
                  .exposed_communication_time_s = phase(Phase::exposed_communication),
                  .pipeline_idle_time_s = phase(Phase::pipeline_idle),
                  .optimizer_time_s = phase(Phase::optimizer),
                  .checkpoint_time_s = phase(Phase::checkpoint),
                  .other_time_s = phase(Phase::other),
                  .transfer_time_s = seconds(transfer_ns_.exchange(0, std::memory_order_relaxed))};
  std::int64_t wall_ns = 0;
  for (std::int64_t& ns : exclusive_ns_) {
    wall_ns += ns;
    ns = 0;
  }
  totals.wall_s = seconds(wall_ns);
  for (std::size_t i = 0; i < device_ns_.size(); ++i) {
    totals.device_s[i] = seconds(std::exchange(device_ns_[i], 0));
  }
  totals.bytes_sent = bytes_sent_.exchange(0, std::memory_order_relaxed);
  totals.bytes_received = bytes_received_.exchange(0, std::memory_order_relaxed);
  return totals;
}

}  // namespace dtrain::record
