#include "parallel/strategy/federated/own_models.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <utility>

namespace dtrain::parallel {
namespace {

std::int64_t packed_size(const at::Tensor& values, const std::vector<models::Buffer*>& buffers) {
  std::int64_t size = 1 + values.numel();
  for (const auto* buffer : buffers) size += buffer->value.numel();
  return size;
}

}  // namespace

OwnModels::OwnModels(const StrategyParts& parts, LocalCopy& copy, std::vector<models::Buffer*> buffers)
    : parts_(parts),
      copy_(copy),
      buffers_(std::move(buffers)),
      states_(parts.folder),
      packed_(at::zeros({packed_size(copy.values(), buffers_)}, copy.values().options())) {}

void OwnModels::begin_client(int client, std::int64_t round) {
  const at::NoGradGuard no_grad;
  states_.load(client, round, packed_);
  if (packed_[0].item<double>() == 0) return;
  auto first = 1 + copy_.values().numel();
  copy_.values().copy_(packed_.slice(0, 1, first));
  for (auto* buffer : buffers_) {
    const auto end = first + buffer->value.numel();
    buffer->value.copy_(packed_.slice(0, first, end).reshape(buffer->value.sizes()));
    first = end;
  }
  copy_.replaced();
}

void OwnModels::end_client(int client, std::int64_t round) {
  const at::NoGradGuard no_grad;
  packed_[0].fill_(1);
  auto first = 1 + copy_.values().numel();
  packed_.slice(0, 1, first).copy_(copy_.values());
  for (const auto* buffer : buffers_) {
    const auto end = first + buffer->value.numel();
    packed_.slice(0, first, end).copy_(buffer->value.flatten());
    first = end;
  }
  states_.store(client, round, packed_, states_.kept());
}

void OwnModels::show(int client, std::int64_t round) { begin_client(client, round + 1); }

}  // namespace dtrain::parallel
