#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

#include "core/profiler_ranges.hpp"
#include "core/span_sink.hpp"

namespace dtrain::parallel {

/// A moment of a device's stream, with its time: it is there once the stream has come so far.
c10::Event moment_of(const c10::Stream& stream);

/// Passes all spans on to another sink, and reports to it how long a device was at work for each phase and
/// copy. It puts events into the device's streams and looks at them later: no thread waits for the device. A
/// profiler that listens sees the same spans.
class DeviceClock final : public PassingSpanSink {
 public:
  /// Sink and ranges (null: none) are borrowed. What the device does counts from here; waits for it, this
  /// once.
  DeviceClock(c10::Device device, SpanSink& sink, const ProfilerRanges* ranges = nullptr);

  void enter(Phase phase, std::string_view name) override;
  void leave() override;

  /// What a stream did between two of its moments is a copy between the CPU and the device.
  void add_transfer(c10::Event begin, c10::Event end);

 private:
  struct Span {
    Phase phase;
    std::string_view name;
    c10::Event begin;
    c10::Event end;
  };
  struct Open {
    int depth;
    Phase phase;
    std::string_view name;
    c10::Event begin;
  };
  c10::Event now() const;  // on the device
  void tell_what_is_done();

  c10::Device device_;
  const ProfilerRanges* ranges_;
  c10::Event latest_;           // the end of the newest span that was passed on
  std::int64_t latest_ns_ = 0;  // its steady_ns()
  int depth_ = 0;
  std::optional<Open> open_;
  std::deque<Span> under_way_;  // in the order in which they were put into the streams
};

/// The most bytes that tensors have had of the device's memory at a time; 0 for the CPU, and where LibTorch
/// does not count them.
std::int64_t peak_memory(c10::Device device);

}  // namespace dtrain::parallel
