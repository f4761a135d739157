#include "parallel/strategy/state_view.hpp"

namespace dtrain::parallel {

StateView::StateView(FlatParameters& parameters, models::Model& model, optim::Optimizer& optimizer)
    : parameters_(parameters), model_(model) {
  for (const auto& moments : optimizer.state()) optimizer_.push_back({moments.name, moments.value});
}

std::vector<StateTensor> StateView::tensors() const {
  std::vector<StateTensor> all;
  for (const auto* buffer : model_.buffers()) {
    all.push_back({StateTensor::kModel, buffer->name, buffer->value, buffer->slice});
  }
  for (const auto* parameter : model_.parameters()) {
    all.push_back({StateTensor::kModel, parameter->name, parameter->value.detach(), parameter->slice});
  }
  for (const auto& flat : optimizer_) {
    for (const auto& entry : parameters_.entries()) {
      all.push_back({StateTensor::kOptimizer + flat.state, entry.parameter->name,
                     FlatParameters::view(flat.values, entry), entry.parameter->slice, flat.owner});
    }
  }
  all.insert(all.end(), more_.begin(), more_.end());
  return all;
}

}  // namespace dtrain::parallel
