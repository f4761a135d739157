#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "models/exported/graph.hpp"
#include "models/exported/operations/given.hpp"
#include "models/layer.hpp"

namespace dtrain::models::exported {

/// Drops elements of `x` with probability `p`, in [0, 1], in training. `flow`: which part of dim 1 of the
/// whole tensor it is.
at::Tensor dropped(const at::Tensor& x, double p, const Context& context, std::uint32_t stream,
                   const Flow& flow = {});

/// The same of the node's value called `input`, with the node's probability and masks. `keeps_strides`:
/// whether the result lies in memory as the input does.
std::unique_ptr<Operation> dropout_operation(const Given& given, const char* input, bool keeps_strides,
                                             const Flow& flow = {});

/// Of a node's masks; `part` tells several of one node apart.
std::uint32_t stream_of(const Node& node, const std::string& part = "");

}  // namespace dtrain::models::exported
