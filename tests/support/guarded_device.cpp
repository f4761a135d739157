#include "support/guarded_device.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "support/event_guard.hpp"
#include "support/guarded_memory.hpp"

namespace dtrain {
namespace {

GuardedWork* captured = nullptr;

struct Guard final : test::EventGuard<&steady_ns> {
  c10::Device exchangeDevice(c10::Device) const override { return kGuarded; }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, kGuarded, 1);
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kGuarded);
  }
  void block(void*, const c10::Stream&) const override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();  // nothing draws from it
    return generator;
  }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
};

[[maybe_unused]] const bool kHasHooks = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &guarded_allocator());
  c10::register_privateuse1_backend("guarded");
  return true;
}();

}  // namespace

void* guarded_allocate(std::size_t bytes) { return GuardedMemory::all().allocate(bytes); }
void guarded_release(void* data) { GuardedMemory::all().release(data); }

void guarded_capture(GuardedWork* into) { captured = into; }
GuardedWork* guarded_captured() { return captured; }

void guarded_do(std::function<void()> work) {
  captured != nullptr ? captured->push_back(std::move(work)) : work();
}

void guarded_copy(void* to, const void* from, std::size_t bytes) {
  auto& memory = GuardedMemory::all();
  void* const source = const_cast<void*>(from);  // opened, not written to
  memory.open(to);
  memory.open(source);
  std::memcpy(to, from, bytes);
  memory.close(source);
  memory.close(to);
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace dtrain
