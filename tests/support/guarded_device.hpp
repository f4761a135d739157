#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace dtrain {

/// A stand-in for a GPU on machines without one: LibTorch's device `privateuseone`, whose memory nobody may
/// touch but LibTorch's own operations. Whatever else reads or writes it (a kernel written for the CPU, a
/// memcpy, a communication) ends by SIGSEGV. Operations compute on copies in the CPU's memory. So what passes
/// here hands device memory about as a GPU wants it; it says nothing of a GPU's numbers, streams or speed.
/// Linking guarded_device.cpp and those beside it is what registers it, in the whole process.
/// DTRAIN_GUARDED_BYTES: how much of it there is. DTRAIN_DEVICE_WAITS: a file that gets a line per process
/// with how often the CPU had to wait for what such a device had been given: to read a number, or to copy.
inline const c10::Device kGuarded{c10::DeviceType::PrivateUse1, 0};

void* guarded_allocate(std::size_t bytes);
void guarded_release(void* data);

/// As the device's driver would: either may lie in its memory.
void guarded_copy(void* to, const void* from, std::size_t bytes);

/// Work that was captured: to be done in this order.
using GuardedWork = std::vector<std::function<void()>>;

/// From here on operations on the device are put into `into` and not done, as a GPU captures a graph: what
/// they return has shapes and no values, what they would change stays, and waiting for the device, or copying
/// between it and the CPU, throws c10::Error. Null: they are done again.
void guarded_capture(GuardedWork* into);
/// Where something captures, puts `work` there; else does it.
void guarded_do(std::function<void()> work);

}  // namespace dtrain
