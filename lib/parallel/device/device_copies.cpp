#include "parallel/device/device_copies.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "parallel/device/device_clock.hpp"

namespace dtrain::parallel {

DeviceCopies::DeviceCopies(at::Device device, DeviceClock* clock) : device_(device), clock_(clock) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

at::Tensor DeviceCopies::staging(at::IntArrayRef sizes, at::ScalarType type) const {
  return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(device_.is_cuda()));
}

at::Tensor DeviceCopies::ahead(const std::function<at::Tensor()>& work) const {
  if (!stream_) return work();
  const c10::impl::VirtualGuardImpl streams(device_.type());
  const c10::Stream computing = streams.exchangeStream(*stream_);
  auto begun = moment_of(*stream_);
  at::Tensor made;
  try {
    made = work();
  } catch (...) {
    streams.exchangeStream(computing);
    throw;
  }
  auto done = moment_of(*stream_);
  streams.exchangeStream(computing);
  done.block(computing);
  streams.recordDataPtrOnStream(made.storage().data_ptr(), computing);  // its memory is not another's before
  if (clock_ != nullptr) clock_->add_transfer(std::move(begun), std::move(done));
  return made;
}

at::Tensor DeviceCopies::copied(const at::Tensor& values, at::ScalarType type) const {
  const auto from = staging(values.sizes(), type);
  from.copy_(values);
  return ahead([&] { return from.to(device_, /*non_blocking=*/true); });
}

void* DeviceCopies::stream() const {
  return stream_ && device_.is_cuda() ? stream_->native_handle() : nullptr;
}

}  // namespace dtrain::parallel
