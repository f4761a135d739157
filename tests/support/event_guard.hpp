#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdint>

namespace dtrain::test {

/// What LibTorch asks of a device that is a stand-in, `privateuseone`: all is done at once, so an event is
/// the time at which it was recorded, by `Now` in nanoseconds. Differences are floats of milliseconds, as
/// CUDA's are.
template <std::int64_t (*Now)()>
struct EventGuard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
  c10::Device getDevice() const override { return {c10::DeviceType::PrivateUse1, 0}; }
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, getDevice());
  }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new std::int64_t;
    *static_cast<std::int64_t*>(*event) = Now();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<std::int64_t*>(event);
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    const auto ns = *static_cast<std::int64_t*>(end) - *static_cast<std::int64_t*>(begin);
    return static_cast<float>(static_cast<double>(ns) * 1e-6);
  }
};

}  // namespace dtrain::test
