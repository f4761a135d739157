#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtrain {

/// Where the time of a step goes. The exclusive phases add up to the step; `communication` and `transfer`
/// run beside them and overlap.
enum class Phase : std::uint8_t {
  data,  ///< Waiting for the loader and preparing the batch.
  forward,
  backward,
  exposed_communication,  ///< The compute thread drives or waits for communication.
  pipeline_idle,
  optimizer,
  checkpoint,
  other,          ///< What no one claimed.
  communication,  ///< Overlapping: from start to end of each operation of the queue.
  transfer,       ///< Overlapping: host to device copies.
};
inline constexpr std::size_t kPhases = 10;
inline constexpr std::size_t kExclusivePhases = 8;  ///< The first ones.

/// The phase's name as the columns of results.h5 have it, without `_time_s`.
constexpr std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, kPhases> kNames = {
      "data",      "forward",    "backward", "exposed_communication", "pipeline_idle",
      "optimizer", "checkpoint", "other",    "communication",         "transfer"};
  return kNames[static_cast<std::size_t>(phase)];
}

/// Receives what a rank does and when. The compute thread calls enter and leave, strictly nested: an inner
/// span's time is taken from the outer one, so that exclusive phases never count a moment twice.
/// overlapped() and moved() may be called from any thread.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  /// `name` must outlive the sink (a literal).
  virtual void enter(Phase phase, std::string_view name) = 0;
  virtual void leave() = 0;
  /// An operation that ran from `start_ns` to `end_ns` (steady_ns) beside the compute thread.
  virtual void overlapped(Phase phase, std::string_view name, std::int64_t start_ns, std::int64_t end_ns) = 0;
  /// What a device did for a phase that the compute thread may have left long since. Compute thread only.
  virtual void on_device(Phase /*phase*/, std::string_view /*name*/, std::int64_t /*start_ns*/,
                         std::int64_t /*end_ns*/) {}
  /// Payload bytes that this rank sent to and received from other ranks.
  virtual void moved(std::int64_t bytes_sent, std::int64_t bytes_received) = 0;
};

/// Tells another sink all that it is told itself: for sinks that do something more with a part of it.
class PassingSpanSink : public SpanSink {
 public:
  explicit PassingSpanSink(SpanSink& next) : next_(next) {}  ///< Borrowed.
  void enter(Phase phase, std::string_view name) override { next_.enter(phase, name); }
  void leave() override { next_.leave(); }
  void overlapped(Phase phase, std::string_view name, std::int64_t start_ns, std::int64_t end_ns) override {
    next_.overlapped(phase, name, start_ns, end_ns);
  }
  void on_device(Phase phase, std::string_view name, std::int64_t start_ns, std::int64_t end_ns) override {
    next_.on_device(phase, name, start_ns, end_ns);
  }
  void moved(std::int64_t bytes_sent, std::int64_t bytes_received) override {
    next_.moved(bytes_sent, bytes_received);
  }

 private:
  SpanSink& next_;
};

/// Discards everything: for tests and for ranks that do not record.
class NullSpanSink final : public SpanSink {
 public:
  void enter(Phase, std::string_view) override {}
  void leave() override {}
  void overlapped(Phase, std::string_view, std::int64_t, std::int64_t) override {}
  void moved(std::int64_t, std::int64_t) override {}
};

/// One span of the compute thread, for as long as it lives.
class ScopedSpan {
 public:
  ScopedSpan(SpanSink& sink, Phase phase, std::string_view name) : sink_(sink) { sink_.enter(phase, name); }
  ~ScopedSpan() { sink_.leave(); }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  SpanSink& sink_;
};

}  // namespace dtrain
