#include "parallel/device/device_clock.hpp"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <utility>

#include "core/clock.hpp"

namespace dtrain::parallel {
namespace {

/// What the compute thread gives the device work in. In the other phases it does nothing there, or waits.
bool is_work(Phase phase) {
  return phase == Phase::forward || phase == Phase::backward || phase == Phase::optimizer;
}

/// CUDA gives milliseconds as a float: a fifth of a microsecond for a second, a quarter of a millisecond
/// after an hour. So the two events must lie close together.
std::int64_t nanoseconds_between(const c10::Event& begin, const c10::Event& end) {
  return std::llround(begin.elapsedTime(end) * 1e6);
}

}  // namespace

c10::Event moment_of(const c10::Stream& stream) {
  c10::Event event(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(stream);
  return event;
}

DeviceClock::DeviceClock(c10::Device device, SpanSink& sink, const ProfilerRanges* ranges)
    : PassingSpanSink(sink), device_(device), ranges_(ranges), latest_(now()) {
  latest_.synchronize();
  latest_ns_ = steady_ns();
}

c10::Event DeviceClock::now() const {
  return moment_of(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void DeviceClock::enter(Phase phase, std::string_view name) {
  PassingSpanSink::enter(phase, name);
  if (ranges_ != nullptr) ranges_->push(name.data());  // a literal
  tell_what_is_done();
  ++depth_;
  if (!open_ && is_work(phase)) open_.emplace(Open{depth_, phase, name, now()});
}

void DeviceClock::leave() {
  if (open_ && open_->depth == depth_) {
    std::optional<c10::Event> end;
    try {
      end = now();
    } catch (const c10::Error&) {  // the device has failed: the call that found it, or the next one, says so
    }
    if (end) under_way_.push_back({open_->phase, open_->name, std::move(open_->begin), std::move(*end)});
    open_.reset();
  }
  --depth_;
  if (ranges_ != nullptr) ranges_->pop();
  PassingSpanSink::leave();
}

void DeviceClock::add_transfer(c10::Event begin, c10::Event end) {
  under_way_.push_back({Phase::transfer, "copy", std::move(begin), std::move(end)});
}

void DeviceClock::tell_what_is_done() {
  while (!under_way_.empty() && under_way_.front().end.query()) {
    Span& span = under_way_.front();
    const auto begin_ns = latest_ns_ + nanoseconds_between(latest_, span.begin);
    const auto end_ns = begin_ns + nanoseconds_between(span.begin, span.end);
    if (span.phase == Phase::transfer) {
      overlapped(span.phase, span.name, begin_ns, end_ns);
    } else {
      on_device(span.phase, span.name, begin_ns, end_ns);
    }
    latest_ = std::move(span.end);
    latest_ns_ = end_ns;
    under_way_.pop_front();
  }
}

std::int64_t peak_memory(c10::Device device) {
  if (device.is_cpu()) return 0;
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr) return 0;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return allocator->getDeviceStats(device.index()).allocated_bytes.at(kAll).peak;
}

}  // namespace dtrain::parallel
