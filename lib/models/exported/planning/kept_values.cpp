#include "models/exported/planning/kept_values.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

/// What the derivative of an operator reads.
struct Reads {
  enum class What {
    nothing,  ///< or sizes, masks and indices alone: `arguments`
    input,
    result,
    both,
    factors  ///< Each input only where another one has a gradient: a product.
  } what = What::both;
  std::string_view argument = {};  ///< What it reads in any case.
};

struct Rule {
  Reads reads;
  std::initializer_list<std::string_view> names;
};

using enum Reads::What;

const std::array<Rule, 9>& rules() {
  static const std::array<Rule, 9> kRules = {
      {{{nothing},
        {"add",
         "add_",
         "sub",
         "sub_",
         "rsub",
         "neg",
         "cat",
         "concat",
         "stack",
         "sum",
         "mean",
         "dropout",
         "dropout_",
         "pad",
         "constant_pad_nd",
         "repeat",
         "roll",
         "flip",
         "clone",
         "contiguous",
         "to",
         "_to_copy",
         "type_as",
         "pixel_shuffle",
         "pixel_unshuffle",
         "cumsum",
         "channel_shuffle",
         "im2col",
         "unfold",
         "copy_",
         "zeros_like",
         "upsample_nearest2d",
         "upsample_bilinear2d",
         "upsample_bicubic2d",
         "view",
         "reshape",
         "transpose",
         "permute",
         "expand",
         "slice",
         "select",
         "chunk",
         "split",
         "split_with_sizes",
         "unsqueeze",
         "squeeze",
         "flatten",
         "unflatten",
         "detach",
         "t",
         "narrow",
         "unbind",
         "alias",
         "movedim",
         "swapaxes",
         "expand_as",
         "view_as"}},
       {{nothing, "indices"}, {"embedding", "index", "embedding_bag"}},
       {{nothing, "index"}, {"gather", "index_select", "take_along_dim"}},
       {{nothing, "mask"}, {"masked_fill", "masked_fill_"}},
       {{nothing, "condition"}, {"where"}},
       {{input},
        {"layer_norm",
         "group_norm",
         "batch_norm",
         "gelu",
         "silu",
         "silu_",
         "hardswish",
         "hardswish_",
         "hardsigmoid",
         "hardtanh",
         "hardtanh_",
         "relu6",
         "relu6_",
         "mish",
         "leaky_relu",
         "elu",
         "selu",
         "clamp",
         "clamp_min",
         "clamp_max",
         "abs",
         "log",
         "sin",
         "cos",
         "erf",
         "pow",
         "square",
         "avg_pool1d",
         "avg_pool2d",
         "adaptive_avg_pool1d",
         "adaptive_avg_pool2d",
         "prelu"}},
       {{result},
        {"relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_", "softmax", "_softmax", "log_softmax", "exp",
         "sqrt", "rsqrt", "reciprocal"}},
       {{both}, {"scaled_dot_product_attention", "max_pool2d", "amax", "max"}},
       {{factors},
        {"mul", "mul_", "linear", "mm", "bmm", "matmul", "addmm", "baddbmm", "div", "div_", "conv1d",
         "conv2d", "conv3d", "einsum", "conv_transpose1d", "conv_transpose2d"}}}};
  return kRules;
}

Reads reads_of(const Node& node) {
  for (const Rule& rule : rules()) {
    if (std::ranges::any_of(rule.names, [&](std::string_view name) { return calls(node, name); }))
      return rule.reads;
  }
  return {};
}

}  // namespace

KeptValues::KeptValues(const Graph& graph, const Plan& plan)
    : memory_(graph.values.size()), same_(plan.same) {
  const auto carries = [&](ValueId value) {
    return plan.carries.contains(value) || plan.trained.contains(value);
  };
  for (const Run& run : plan.runs) {
    for (const Step& step : run.steps) {
      const Node& node = graph.nodes[step.node];
      for (const auto& sharing : shared_memory(node, step.handle.schema()))
        memory_.join(same_[sharing.output], same_[sharing.input]);
      if (!step.overwrites_input || node.outputs.empty() || node.outputs[0].values.empty()) continue;
      for (const ValueId value : tensors_read(step, graph))
        memory_.join(same_[node.outputs[0].values[0]], same_[value]);
    }
  }
  const auto keep = [&](ValueId value) { roots_.insert(memory_.root(same_[value])); };
  keep(plan.output);  // by the loss
  for (const Run& run : plan.runs) {
    for (const Step& step : run.steps) {
      const Node& node = graph.nodes[step.node];
      const auto read = tensors_read(step, graph);
      const auto with_gradient = std::ranges::count_if(read, carries);
      if (with_gradient == 0) continue;
      const auto reads = reads_of(node);
      const bool all_inputs = reads.what == input || reads.what == both;
      for (const ValueId value : read) {
        const bool factor = reads.what == factors && with_gradient > (carries(value) ? 1 : 0);
        if (all_inputs || factor) keep(value);
      }
      if (!reads.argument.empty()) {
        const auto* given = node.find(reads.argument);
        for (std::size_t i = 0; given != nullptr && i < given->values.size(); ++i)
          if (given->values[i]) keep(*given->values[i]);
      }
      if (reads.what != result && reads.what != both && !step.relu_follows) continue;
      for (const auto& output : node.outputs)
        if (output.kind != Output::Kind::number) std::ranges::for_each(output.values, keep);
    }
  }
}

bool KeptValues::contains(ValueId value) const { return roots_.contains(memory_.root(same_[value])); }

}  // namespace dtrain::models::exported
