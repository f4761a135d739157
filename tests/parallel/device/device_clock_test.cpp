#include "parallel/device/device_clock.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "support/event_guard.hpp"

namespace dtrain::parallel {
namespace {

const c10::Device kDevice{c10::DeviceType::PrivateUse1, 0};
std::int64_t now_ns = 0;  // on the device

bool has_failed = false;  // the device

std::int64_t device_ns() { return now_ns; }
struct Guard final : test::EventGuard<&device_ns> {
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device,
              c10::EventFlag flag) const override {
    TORCH_CHECK(!has_failed, "the device has failed");
    EventGuard::record(event, stream, device, flag);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Sink final : SpanSink {
  void enter(Phase, std::string_view) override {}
  void leave() override { ++left; }
  void overlapped(Phase, std::string_view, std::int64_t, std::int64_t) override {}
  void on_device(Phase, std::string_view, std::int64_t start_ns, std::int64_t end_ns) override {
    durations_ns.push_back(end_ns - start_ns);
  }
  void moved(std::int64_t, std::int64_t) override {}
  std::vector<std::int64_t> durations_ns;
  int left = 0;
};

TEST(DeviceClock, SpansAreExactAfterHours) {
  constexpr std::int64_t kSpan_ns = 100'000;
  constexpr int kSpans = 1000;
  Sink sink;
  DeviceClock clock(kDevice, sink);
  now_ns += std::int64_t{10} * 3600 * 1'000'000'000;
  for (int i = 0; i < kSpans; ++i) {
    clock.enter(Phase::forward, "forward");
    now_ns += kSpan_ns;
    clock.leave();
  }
  clock.enter(Phase::other, "end");  // the clock looks at what is done
  ASSERT_EQ(sink.durations_ns.size(), kSpans);
  for (const auto duration_ns : sink.durations_ns) {
    EXPECT_GE(duration_ns, kSpan_ns - 10);
    EXPECT_LE(duration_ns, kSpan_ns + 10);
  }
}

TEST(DeviceClock, SpansEndOnADeviceThatHasFailed) {
  Sink sink;
  DeviceClock clock(kDevice, sink);
  try {
    const ScopedSpan span(clock, Phase::forward, "forward");
    has_failed = true;
    throw std::runtime_error("an illegal memory access");
  } catch (const std::runtime_error&) {  // and the process goes on
  }
  has_failed = false;
  EXPECT_EQ(sink.left, 1);
  { const ScopedSpan span(clock, Phase::forward, "forward"); }
  clock.enter(Phase::other, "end");
  EXPECT_EQ(sink.durations_ns.size(), 1U) << "the first has no end";
}

}  // namespace
}  // namespace dtrain::parallel
