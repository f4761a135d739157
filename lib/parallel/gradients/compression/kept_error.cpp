#include "parallel/gradients/compression/kept_error.hpp"

#include <ATen/ATen.h>

namespace dtrain::parallel {

StateTensor kept_error(const std::string& group, const std::string& name, const at::Tensor& error,
                       const comm::NodePlace& place) {
  return {
      .group = StateTensor::kOptimizer + group,
      .name = name,
      .value = error,
      .owner = {.copy = StateTensor::Owner::Copy{.index = place.node, .count = place.nodes, .adds_up = true}},
      .shard = Slice::whole(name, error.sizes().vec()),
      .anew = kErrorStartsAnew};
}

void ErrorFeedback::begin_errors(const FlatParameters& parameters, const comm::Group& group) {
  place_ = group.node_place();
  if (place_.leads) errors_ = at::zeros({parameters.size()}, at::kFloat);
}

float* ErrorFeedback::error_at(std::int64_t offset) const {
  return errors_.defined() ? errors_.mutable_data_ptr<float>() + offset : nullptr;
}

void ErrorFeedback::save_error(const std::string& group, const FlatParameters::Entry& entry) {
  if (!errors_.defined()) return;
  save(kept_error(group, entry.parameter->name, FlatParameters::view(errors_, entry), place_));
}

}  // namespace dtrain::parallel
