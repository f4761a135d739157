#include "parallel/strategy/state_view.hpp"

namespace dtrain::parallel {

std::vector<StateTensor> StateView::tensors() const {
  std::vector<StateTensor> all;
  for (const auto* buffer : model_.buffers()) {
    all.push_back({StateTensor::kModel, buffer->name, buffer->value, buffer->slice});
  }
  for (const auto* parameter : model_.parameters()) {
    all.push_back({StateTensor::kModel, parameter->name, parameter->value.detach(), parameter->slice});
  }
  for (const auto& moments : optimizer_.state()) {
    for (const auto& entry : parameters_.entries()) {
      all.push_back({StateTensor::kOptimizer + moments.name, entry.parameter->name,
                     FlatParameters::view(moments.value, entry), entry.parameter->slice});
    }
  }
  return all;
}

}  // namespace dtrain::parallel
