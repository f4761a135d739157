#include "models/exported/samples/sample_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/samples/parameter_uses.hpp"

namespace dtrain::models::exported {
namespace {

/// Element by element: of one tensor or of several, which are broadcast.
constexpr auto kByElement = std::to_array<std::string_view>(
    {"relu",        "relu_",       "relu6",       "gelu",       "silu",        "silu_",       "sigmoid",
     "sigmoid_",    "tanh",        "tanh_",       "elu",        "elu_",        "selu",        "celu",
     "leaky_relu",  "leaky_relu_", "softplus",    "softsign",   "hardtanh",    "hardtanh_",   "hardswish",
     "hardsigmoid", "mish",        "log_sigmoid", "clamp",      "clamp_min",   "clamp_max",   "clip",
     "exp",         "expm1",       "log",         "log1p",      "log2",        "sqrt",        "rsqrt",
     "reciprocal",  "pow",         "square",      "abs",        "neg",         "sign",        "sin",
     "cos",         "erf",         "floor",       "ceil",       "round",       "logical_not", "logical_and",
     "logical_or",  "bitwise_not", "bitwise_and", "bitwise_or", "eq",          "ne",          "lt",
     "le",          "gt",          "ge",          "add",        "sub",         "rsub",        "mul",
     "div",         "maximum",     "minimum",     "where",      "masked_fill", "dropout",     "contiguous",
     "clone",       "alias",       "detach",      "to",         "_to_copy"});
/// Along the dims that they name.
constexpr auto kAlongDims = std::to_array<std::string_view>(
    {"softmax", "log_softmax", "_softmax", "_log_softmax", "sum", "mean", "amax", "amin", "cumsum", "flip",
     "cat", "stack", "split", "chunk", "split_with_sizes", "select", "slice", "narrow", "unbind"});
/// Rows stay in their order, and those of a sample together, as long as dim 0 counts samples before and
/// after.
constexpr auto kInOtherShape = std::to_array<std::string_view>(
    {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "expand", "unsqueeze", "squeeze", "view_as"});
/// Images, [n, channels, ...]: with so many dims dim 0 counts samples.
struct OfImages {
  std::string_view name;
  std::size_t dims;
};
constexpr std::array<OfImages, 14> kOfImages = {{{"conv1d", 3},
                                                 {"conv2d", 4},
                                                 {"conv3d", 5},
                                                 {"conv_transpose1d", 3},
                                                 {"conv_transpose2d", 4},
                                                 {"conv_transpose3d", 5},
                                                 {"max_pool1d", 3},
                                                 {"max_pool2d", 4},
                                                 {"avg_pool1d", 3},
                                                 {"avg_pool2d", 4},
                                                 {"adaptive_avg_pool1d", 3},
                                                 {"adaptive_avg_pool2d", 4},
                                                 {"adaptive_max_pool2d", 4},
                                                 {"pixel_shuffle", 4}}};

template <std::size_t N>
bool is_one_of(const Node& node, const std::array<std::string_view, N>& names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return calls(node, name); });
}

/// Looks at one node after the other.
class Inspection {
 public:
  Inspection(const PlannedProgram& planned, std::size_t run, std::string samples)
      : planned_(planned),
        run_(planned.plan.runs[run]),
        graph_(planned.program.graph()),
        samples_(std::move(samples)) {}

  /// Empty: no objection.
  std::string objection(const Step& step) const {
    const Node& node = graph_.nodes[step.node];
    if (turns_parameter(planned_, node)) return {};
    const auto used = parameters_of(planned_, node);
    std::vector<ValueId> of_samples;
    for (const ValueId value : tensors_read(step, graph_)) {
      if (counts_samples(value)) of_samples.push_back(value);
    }
    if (step.texts) return "takes the mean of words, and has no rule";
    if (of_samples.empty()) {
      if (!used.empty() && is_added_to_samples(node)) return {};
      if (!used.empty() && !calls(node, "expand")) return "makes of a parameter what all samples share";
      if (used.empty()) return names_samples_elsewhere(node) ? "depends on the number of samples" : "";
    }
    if (auto why = results(node); !why.empty()) return why;
    if (!used.empty()) {
      const bool known = std::ranges::all_of(used, [&](const auto& one) { return has_rule(node, one); });
      if (!known) return "uses a parameter in a way without a rule";
    }
    if (!is_one_of(node, kInOtherShape) && names_samples(node)) return "depends on the number of samples";
    return keeps_apart(node, of_samples) ? "" : "is not known to keep samples apart";
  }

 private:
  const std::vector<SizeExpression>& sizes(ValueId value) const { return graph_[value].tensor->sizes; }

  bool depends(const SizeExpression& size) const { return size.symbols().contains(samples_); }

  /// Rows of a sample, of what has as many for each; nothing where it has not.
  std::optional<std::int64_t> rows_each(const SizeExpression& size) const {
    Symbols symbols;
    for (const auto& symbol : size.symbols()) symbols[symbol] = 7;
    std::array<std::int64_t, 3> rows{};
    try {
      for (std::size_t n = 1; n <= rows.size(); ++n) {
        symbols[samples_] = static_cast<std::int64_t>(n) + 1;
        rows[n - 1] = size.evaluate(symbols);
      }
    } catch (const Error&) {  // no whole number
      return std::nullopt;
    }
    if (rows[0] % 2 != 0 || rows[0] / 2 * 3 != rows[1] || rows[0] / 2 * 4 != rows[2]) return std::nullopt;
    return rows[0] / 2;
  }

  bool counts_samples(ValueId value) const {
    if (!graph_[value].tensor || sizes(value).empty()) return false;
    return depends(sizes(value)[0]) && rows_each(sizes(value)[0]);
  }

  std::string results(const Node& node) const {
    for (const auto& output : node.outputs) {
      if (output.kind == Output::Kind::none || output.kind == Output::Kind::number) continue;
      for (const ValueId value : output.values) {
        if (!counts_samples(value)) return "gives what does not count samples along its first dim";
        for (std::size_t dim = 1; dim < sizes(value).size(); ++dim) {
          if (depends(sizes(value)[dim])) return "has samples along another dim than the first";
        }
      }
    }
    return {};
  }

  /// A number among the arguments that depends on the number of samples.
  bool names_samples(const Node& node) const {
    return std::ranges::any_of(node.inputs, [&](const auto& given) {
      return std::ranges::any_of(given.second.sizes, [&](const Size& size) {
        return size.value && graph_[*size.value].number && depends(*graph_[*size.value].number);
      });
    });
  }
  /// Of what is made without samples: constants with a row for each are none of these.
  bool names_samples_elsewhere(const Node& node) const {
    constexpr std::array<std::string_view, 5> kFilled = {"zeros", "ones", "full", "new_zeros", "expand"};
    return names_samples(node) && !is_one_of(node, kFilled);
  }

  bool has_rule(const Node& node, const UsedParameter& used) const {
    const auto is = [&](std::string_view argument) { return used.argument == argument; };
    const auto dims = sizes(used.parameter).size();
    if (calls(node, "linear")) return !used.turned && (is("bias") || (is("weight") && dims == 2));
    if (calls(node, "addmm")) {
      const auto* beta = node.find("beta");
      const auto* alpha = node.find("alpha");
      return beta == nullptr && alpha == nullptr && dims <= 2 && ((is("self") && dims == 1) || is("mat2"));
    }
    if (calls(node, "mm")) return is("mat2");
    if (calls(node, "matmul")) return is("other") && dims == 2;
    if (calls(node, "embedding"))
      return is("weight") && !node.find("scale_grad_by_freq") && !node.find("sparse");
    if (calls(node, "layer_norm") || calls(node, "group_norm")) return is("weight") || is("bias");
    if (calls(node, "expand")) return is("self");
    if (calls(node, "add") || calls(node, "mul"))
      return !used.turned && node.find("alpha") == nullptr && is_broadcast(node, used.parameter);
    const bool convolves = node.target.find("conv") != std::string::npos && is_image_operator(node);
    return convolves && !node.target.ends_with(".padding") && (is("weight") || is("bias"));
  }

  /// Beside rows of samples: it has no dim for them.
  bool is_broadcast(const Node& node, ValueId value) const {
    const auto& out = sizes(result_of(node));
    const auto& own = sizes(value);
    return own.size() < out.size() || (own.size() == out.size() && own[0].constant() == 1);
  }

  bool is_image_operator(const Node& node) const {
    return std::ranges::any_of(kOfImages, [&](const OfImages& one) { return calls(node, one.name); });
  }

  bool keeps_apart(const Node& node, const std::vector<ValueId>& of_samples) const {
    if (is_one_of(node, kByElement)) return by_element(node);
    if (is_one_of(node, kAlongDims)) return along_other_dims(node, of_samples);
    if (is_one_of(node, kInOtherShape)) return true;
    if (calls(node, "transpose") || calls(node, "permute")) return leaves_first_dim(node);
    if (calls(node, "linear") || calls(node, "embedding")) return of_samples.size() == 1;
    if (calls(node, "addmm") || calls(node, "mm")) {
      const auto first = tensor_of(node, calls(node, "mm") ? "self" : "mat1");
      return of_samples.size() == 1 && first && of_samples[0] == *first;
    }
    if (calls(node, "matmul")) return multiplies(node, "self", "other");
    if (calls(node, "bmm")) return multiplies(node, "self", "mat2");
    if (calls(node, "scaled_dot_product_attention")) return attends(node);
    if (calls(node, "layer_norm")) {
      const auto* shape = node.find("normalized_shape");
      return shape != nullptr && shape->sizes.size() < sizes(of_samples[0]).size();
    }
    if (calls(node, "group_norm")) return sizes(of_samples[0]).size() >= 2 && of_samples.size() == 1;
    if (calls(node, "pad") || calls(node, "constant_pad_nd")) {
      const auto* pad = node.find("pad");
      return pad != nullptr && pad->sizes.size() / 2 < sizes(of_samples[0]).size();
    }
    return std::ranges::any_of(kOfImages, [&](const OfImages& one) {
      return calls(node, one.name) && of_samples.size() == 1 && sizes(of_samples[0]).size() == one.dims &&
             rows_each(sizes(of_samples[0])[0]) == 1;
    });
  }

  /// What has rows for samples has as many dims as the result, and as many rows; all else has no such dim.
  bool by_element(const Node& node) const {
    if (!has_one_result(node)) return false;
    const auto& out = sizes(result_of(node));
    for (const auto& [name, argument] : node.inputs) {
      for (const auto& value : argument.values) {
        if (!value || !graph_[*value].tensor) continue;
        const bool fits = counts_samples(*value) ? sizes(*value).size() == out.size() &&
                                                       rows_each(sizes(*value)[0]) == rows_each(out[0])
                                                 : sizes(*value).empty() || is_broadcast(node, *value);
        if (!fits) return false;
      }
    }
    return true;
  }

  bool along_other_dims(const Node& node, const std::vector<ValueId>& of_samples) const {
    const auto rank = static_cast<std::int64_t>(sizes(of_samples[0]).size());
    const bool stacks = calls(node, "stack");
    const auto* tensors = node.find("tensors");
    if (tensors != nullptr) {  // each has rows for samples
      for (const auto& value : tensors->values) {
        if (!value || !counts_samples(*value) ||
            rows_each(sizes(*value)[0]) != rows_each(sizes(of_samples[0])[0]))
          return false;
      }
    }
    const auto* dims = node.find("dim");
    if (dims == nullptr) dims = node.find("dims");
    if (dims == nullptr || dims->sizes.empty()) return false;  // all, or the first
    return std::ranges::all_of(dims->sizes, [&](const Size& dim) {
      return !dim.value && dim.number != 0 && dim.number != -(rank + (stacks ? 1 : 0));
    });
  }

  bool leaves_first_dim(const Node& node) const {
    const auto rank = static_cast<std::int64_t>(sizes(result_of(node)).size());
    if (const auto* dims = node.find("dims")) {
      return !dims->sizes.empty() && !dims->sizes[0].value &&
             (dims->sizes[0].number == 0 || dims->sizes[0].number == -rank);
    }
    for (const char* name : {"dim0", "dim1"}) {
      const auto dim = number_of(node, name);
      if (!dim || *dim == 0 || *dim == -rank) return false;
    }
    return true;
  }

  /// Matrix by matrix, of the same samples, or rows by something fixed.
  bool multiplies(const Node& node, const char* one, const char* other) const {
    const auto left = tensor_of(node, one);
    const auto right = tensor_of(node, other);
    if (!left || !right || !counts_samples(*left)) return false;
    if (!counts_samples(*right)) return sizes(*right).size() <= 2 && sizes(*left).size() >= 2;
    return sizes(*left).size() >= 3 && sizes(*left).size() == sizes(*right).size() &&
           rows_each(sizes(*left)[0]) == rows_each(sizes(*right)[0]);
  }

  bool attends(const Node& node) const {
    const auto query = tensor_of(node, "query");
    if (!query || !counts_samples(*query) || sizes(*query).size() < 3) return false;
    for (const char* name : {"key", "value"}) {
      const auto given = tensor_of(node, name);
      if (!given || !counts_samples(*given) || sizes(*given).size() != sizes(*query).size() ||
          rows_each(sizes(*given)[0]) != rows_each(sizes(*query)[0]))
        return false;
    }
    const auto mask = tensor_of(node, "attn_mask");
    if (!mask) return true;
    if (counts_samples(*mask))
      return sizes(*mask).size() == sizes(*query).size() &&
             rows_each(sizes(*mask)[0]) == rows_each(sizes(*query)[0]);
    return is_broadcast(node, *mask);
  }

  /// Of an embedding of positions, alike for all samples: it is only added to what counts samples, in the
  /// same run.
  bool is_added_to_samples(const Node& node) const {
    if (!calls(node, "embedding") || !has_one_result(node)) return false;
    const ValueId result = result_of(node);
    const auto dims = sizes(result).size();
    if (dims > 3 || (dims == 3 && sizes(result)[0].constant() != 1)) return false;
    const auto uses = [&](const Node& other) {
      return std::ranges::any_of(other.inputs, [&](const auto& given) {
        return std::ranges::find(given.second.values, std::optional(result)) != given.second.values.end();
      });
    };
    const auto is_sum = [&](const Node& other) {
      const auto one = tensor_of(other, "self");
      const auto second = tensor_of(other, "other");
      const bool of_samples = one && second && counts_samples(*one == result ? *second : *one);
      return calls(other, "add") && other.find("alpha") == nullptr && of_samples &&
             sizes(result_of(other)).size() == 3;
    };
    std::size_t here = 0;
    for (const Step& step : run_.steps) here += uses(graph_.nodes[step.node]) ? 1 : 0;
    std::size_t all = 0;
    for (const Node& other : graph_.nodes) {
      if (!uses(other)) continue;
      if (!is_sum(other)) return false;
      ++all;
    }
    return all > 0 && here == all && result != planned_.plan.output;
  }

  const PlannedProgram& planned_;
  const Run& run_;
  const Graph& graph_;
  std::string samples_;  // the symbol
};

}  // namespace

std::string sample_obstacle_of(const PlannedProgram& planned, std::size_t run) {
  const auto& graph = planned.program.graph();
  const auto samples = symbol_of_samples(planned);
  if (!samples) return "its inputs do not count samples alike";
  const Inspection inspection(planned, run, *samples);
  for (const Step& step : planned.plan.runs[run].steps) {
    if (auto why = inspection.objection(step); !why.empty())
      return fmt::format("{} {}", graph.nodes[step.node].where(), why);
  }
  return {};
}

}  // namespace dtrain::models::exported
