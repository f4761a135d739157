#pragma once

#include <c10/core/Device.h>

#include <cstddef>

namespace dtrain {

/// A stand-in for a GPU on machines without one: LibTorch's device `privateuseone`, whose memory nobody may
/// touch but LibTorch's own operations. Whatever else reads or writes it (a kernel written for the CPU, a
/// memcpy, a communication) ends by SIGSEGV. Operations compute on copies in the CPU's memory. So what passes
/// here hands device memory about as a GPU wants it; it says nothing of a GPU's numbers, streams or speed.
/// Linking guarded_device.cpp is what registers it, in the whole process. DTRAIN_GUARDED_BYTES: how much of
/// it there is.
inline const c10::Device kGuarded{c10::DeviceType::PrivateUse1, 0};

void* guarded_allocate(std::size_t bytes);
void guarded_release(void* data);

/// As the device's driver would: either may lie in its memory.
void guarded_copy(void* to, const void* from, std::size_t bytes);

}  // namespace dtrain
