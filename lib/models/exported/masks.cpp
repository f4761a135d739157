#include "models/exported/masks.hpp"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "kernels/philox.hpp"
#include "models/layers/dropout.hpp"

namespace dtrain::models::exported {

at::Tensor dropped(const at::Tensor& x, double p, const Context& context, std::uint32_t stream,
                   const Flow& flow) {
  if (context.mode == Mode::evaluation || p == 0.0) return x;
  if (p == 1.0) return x * 0;
  return dropout(x, p, context.dropout_key(stream), flow);
}

std::uint32_t stream_of(const Node& node, const std::string& part) {
  return kernels::stream_of(fmt::format("{}.{}{}", node.module, node.name, part));
}

}  // namespace dtrain::models::exported
