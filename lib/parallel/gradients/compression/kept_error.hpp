#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "comm/group.hpp"
#include "parallel/strategy/state_view.hpp"

namespace dtrain::parallel {

/// What is said where a checkpoint lacks the error of a compression.
inline constexpr const char* kErrorStartsAnew =
    "the checkpoint has no error of this compression, which starts anew";

/// What a node has not sent of a parameter's gradient yet, as checkpoints have it: each node's own. On
/// another number of nodes each takes its share of their sum.
inline StateTensor kept_error(const std::string& group, const std::string& name, const at::Tensor& error,
                              const comm::NodePlace& place) {
  const auto shape = error.sizes().vec();
  return {
      .group = StateTensor::kOptimizer + group,
      .name = name,
      .value = error,
      .owner = {.copy = StateTensor::Owner::Copy{.index = place.node, .count = place.nodes, .adds_up = true}},
      .shard = Slice::whole(name, shape),
      .anew = kErrorStartsAnew};
}

}  // namespace dtrain::parallel
