#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/span_sink.hpp"
#include "record/rows.hpp"

namespace dtrain::record {

class TraceWriter;

/// What a rank did between two readings of its StepClock.
struct PhaseTotals {
  PhaseTimes times;
  double wall_s = 0;  ///< Equals times.exclusive_s() to rounding: what no span claimed is `other`.
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;
  std::array<double, kExclusivePhases>
      device_s{};  ///< What a device did for each phase, as far as it is known.

  PhaseTotals& operator+=(const PhaseTotals& other);
};

/// Divides a rank's time among the phases. The compute thread is always in exactly one: that of the innermost
/// span, or `other`. No allocation, one clock reading per enter and per leave.
class StepClock final : public SpanSink {
 public:
  /// Time counts from here.
  StepClock();

  /// From now on spans also go to `trace`, which must outlive the clock; null: to none.
  void trace_to(TraceWriter* trace) { trace_.store(trace, std::memory_order_release); }

  void enter(Phase phase, std::string_view name) override;
  void leave() override;
  void overlapped(Phase phase, std::string_view name, std::int64_t start_ns, std::int64_t end_ns) override;
  void on_device(Phase phase, std::string_view name, std::int64_t start_ns, std::int64_t end_ns) override;
  void moved(std::int64_t bytes_sent, std::int64_t bytes_received) override;

  /// What happened since the last take(); starts anew. Compute thread only; open spans go on.
  PhaseTotals take();

 private:
  static constexpr std::size_t kDepth = 32;  // deeper spans count for the phase at this depth
  struct Open {
    Phase phase;
    std::string_view name;
    std::int64_t start_ns;
  };
  void charge(std::int64_t now_ns);  // the time since mark_ns_ to the innermost phase

  std::atomic<TraceWriter*> trace_ = nullptr;
  std::array<std::int64_t, kExclusivePhases> exclusive_ns_{};
  std::array<std::int64_t, kExclusivePhases> device_ns_{};
  std::array<Open, kDepth> open_{};
  std::size_t depth_ = 0;
  std::int64_t mark_ns_;
  std::atomic<std::int64_t> communication_ns_{0};
  std::atomic<std::int64_t> transfer_ns_{0};
  std::atomic<std::int64_t> bytes_sent_{0};
  std::atomic<std::int64_t> bytes_received_{0};
};

}  // namespace dtrain::record
