#include "parallel/memory/exchange_memory.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kernels/device_kernels.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::parallel {

void ExchangeMemory::Unpin::operator()(void* memory) const { kernels::device_kernels()->unpin(memory); }

ExchangeMemory::ExchangeMemory(comm::Group& group, std::int64_t elements, const at::TensorOptions& options)
    : group_(carrier_of(group, options.device()).group) {
  if (&group_ != &group) {
    values_ = exchanged_ = at::zeros({elements}, options);
    return;
  }
  const auto type = c10::typeMetaToScalarType(options.dtype());
  memory_ = group.allocate(static_cast<std::size_t>(elements) * c10::elementSize(type));
  exchanged_ = at::from_blob(memory_->data(), {elements}, at::TensorOptions().dtype(type));
  values_ = options.device().is_cpu() ? exchanged_ : at::zeros({elements}, options);
  const auto* const kernels = kernels::device_kernels();
  if (options.device().is_cpu() || kernels == nullptr || memory_->bytes() == 0) return;
  if (kernels->pin(memory_->data(), memory_->bytes())) pinned_.reset(memory_->data());
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
