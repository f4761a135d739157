#include "parallel/memory/exchange_memory.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kernels/device_kernels.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::parallel {

void ExchangeMemory::Unpin::operator()(void* memory) const { kernels::device_kernels()->unpin(memory); }

ExchangeMemory::ExchangeMemory(comm::Group& group, std::int64_t elements, const at::TensorOptions& options)
    : group_(carrier_of(group, options.device()).group) {
  const auto type = c10::typeMetaToScalarType(options.dtype());
  const auto bytes = static_cast<std::size_t>(elements) * c10::elementSize(type);
  if (&group_ != &group) {
    values_ = exchanged_ =
        group_.registers_memory() ? registered(bytes, {elements}, options) : at::zeros({elements}, options);
    return;
  }
  memory_ = group.allocate(bytes);
  exchanged_ = at::from_blob(memory_->data(), {elements}, at::TensorOptions().dtype(type));
  values_ = options.device().is_cpu() ? exchanged_ : at::zeros({elements}, options);
  const auto* const kernels = kernels::device_kernels();
  if (options.device().is_cpu() || kernels == nullptr || memory_->bytes() == 0) return;
  if (kernels->pin(memory_->data(), memory_->bytes())) pinned_.reset(memory_->data());
}

/// The group's memory as a tensor of `shape`, which ends with the last one that is made of it.
at::Tensor ExchangeMemory::registered(std::size_t bytes, at::IntArrayRef shape,
                                      const at::TensorOptions& options) const {
  const std::shared_ptr<comm::SharedBuffer> memory = group_.allocate(bytes);
  return at::for_blob(memory->data(), shape)
      .deleter([memory](void* /*data*/) {})
      .options(options)
      .target_device(options.device())
      .make_tensor();
}

comm::Buffer ExchangeMemory::place(const Range& part) const {
  return buffer_of(exchanged_.narrow(0, part.begin, part.size()));
}

comm::Buffer ExchangeMemory::outgoing(const Range& part) const {
  const at::NoGradGuard no_grad;
  if (!exchanged_.is_same(values_)) {
    exchanged_.narrow(0, part.begin, part.size()).copy_(values_.narrow(0, part.begin, part.size()));
  }
  return place(part);
}

void ExchangeMemory::take_in(const comm::Handle& collective, const Range& part) const {
  const at::NoGradGuard no_grad;
  collective.follow();
  if (exchanged_.is_same(values_)) return;
  values_.narrow(0, part.begin, part.size()).copy_(exchanged_.narrow(0, part.begin, part.size()));
}

}  // namespace dtrain::parallel
