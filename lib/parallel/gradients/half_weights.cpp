#include "parallel/gradients/half_weights.hpp"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "core/error.hpp"

namespace dtrain::parallel {

HalfWeights::HalfWeights(FlatParameters& parameters, at::Tensor values)
    : parameters_(parameters), values_(std::move(values)) {
  require(parameters.values().numel() == parameters.size(), "parameters in shards have no whole copy",
          {.subject = "HalfWeights"});
  for (const auto& entry : parameters_.entries()) {
    entry.parameter->half = FlatParameters::view(values_, entry).detach();
  }
}

HalfWeights::~HalfWeights() {
  for (const auto& entry : parameters_.entries()) entry.parameter->half.reset();
}

void HalfWeights::begin_step() {
  if (std::exchange(written_at_, std::nullopt) == parameters_.values()._version()) return;
  const at::NoGradGuard no_grad;
  values_.copy_(parameters_.values());
}

}  // namespace dtrain::parallel
