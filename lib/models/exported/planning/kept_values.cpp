#include "models/exported/planning/kept_values.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "models/exported/operators.hpp"
#include "models/exported/planning/memory.hpp"

namespace dtrain::models::exported {
namespace {

/// What the derivative of an operator reads.
enum class Reads {
  nothing,
  argument,  ///< Indices, a mask or a condition alone.
  inputs,
  results,
  both,
  factors  ///< Each input where another one has a gradient: a product.
};

struct Rule {
  Reads reads = Reads::both;
  std::string_view operators;      ///< With a space between two.
  std::string_view argument = {};  ///< The one that is read.
};

constexpr std::array kRules = {
    Rule{Reads::nothing,
         "add add_ sub sub_ rsub neg cat concat stack sum mean cumsum dropout dropout_ pad constant_pad_nd "
         "repeat roll flip clone contiguous to _to_copy type_as copy_ zeros_like pixel_shuffle "
         "pixel_unshuffle channel_shuffle im2col unfold upsample_nearest2d upsample_bilinear2d "
         "upsample_bicubic2d view view_as reshape transpose permute movedim swapaxes expand expand_as slice "
         "select narrow chunk split split_with_sizes unbind unsqueeze squeeze flatten unflatten t alias "
         "detach"},
    Rule{Reads::argument, "embedding embedding_bag index", "indices"},
    Rule{Reads::argument, "gather index_select", "index"},
    Rule{Reads::argument, "masked_fill masked_fill_", "mask"},
    Rule{Reads::argument, "where", "condition"},
    Rule{
        Reads::inputs,
        "layer_norm group_norm batch_norm gelu silu silu_ hardswish hardswish_ hardsigmoid hardtanh "
        "hardtanh_ relu6 relu6_ mish leaky_relu elu selu prelu clamp clamp_min clamp_max abs log sin cos erf "
        "pow square avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d"},
    Rule{Reads::results,
         "relu relu_ sigmoid sigmoid_ tanh tanh_ softmax _softmax log_softmax exp sqrt rsqrt reciprocal"},
    Rule{Reads::factors,
         "mul mul_ div div_ linear mm bmm matmul addmm baddbmm einsum conv1d conv2d conv3d conv_transpose1d "
         "conv_transpose2d"}};

bool calls_one_of(const Node& node, std::string_view operators) {
  for (std::size_t begin = 0; begin < operators.size();) {
    const auto end = std::min(operators.find(' ', begin), operators.size());
    if (calls(node, operators.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

/// Of an operator that has no rule, both.
Rule rule_of(const Node& node) {
  const auto* const found =
      std::ranges::find_if(kRules, [&](const Rule& rule) { return calls_one_of(node, rule.operators); });
  return found == kRules.end() ? Rule{} : *found;
}

}  // namespace

std::vector<bool> kept_values(const Graph& graph, const Plan& plan) {
  Memory memory(graph.values.size());
  const auto& same = plan.same;
  const auto carries = [&](ValueId value) {
    return plan.carries.contains(value) || plan.trained.contains(value);
  };
  for (const Run& run : plan.runs) {
    for (const Step& step : run.steps) {
      const Node& node = graph.nodes[step.node];
      for (const auto& sharing : shared_memory(node, step.handle.schema()))
        memory.join(same[sharing.output], same[sharing.input]);
      if (!step.overwrites_input || node.outputs.empty() || node.outputs[0].values.empty()) continue;
      for (const ValueId value : tensors_read(step, graph))
        memory.join(same[node.outputs[0].values[0]], same[value]);
    }
  }
  std::vector<bool> roots(graph.values.size());
  const auto keep = [&](ValueId value) { roots[memory.root(same[value])] = true; };
  keep(plan.output);  // by the loss
  for (const Run& run : plan.runs) {
    for (const Step& step : run.steps) {
      const Node& node = graph.nodes[step.node];
      const auto read = tensors_read(step, graph);
      const auto with_gradient = std::ranges::count_if(read, carries);
      if (with_gradient == 0) continue;
      const auto [reads, operators, argument] = rule_of(node);
      const bool all_inputs = reads == Reads::inputs || reads == Reads::both;
      for (const ValueId value : read) {
        const bool factor = reads == Reads::factors && with_gradient > (carries(value) ? 1 : 0);
        if (all_inputs || factor) keep(value);
      }
      if (const auto given = tensor_of(node, argument); given) keep(*given);
      if (reads != Reads::results && reads != Reads::both && !step.relu_follows) continue;
      for (const auto& output : node.outputs)
        if (output.kind != Output::Kind::number) std::ranges::for_each(output.values, keep);
    }
  }
  std::vector<bool> kept;
  for (ValueId value = 0; value < graph.values.size(); ++value)
    kept.push_back(roots[memory.root(same[value])]);
  return kept;
}

}  // namespace dtrain::models::exported
