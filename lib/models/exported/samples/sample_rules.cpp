#include "models/exported/samples/sample_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "models/exported/operations/recurrent.hpp"
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
/// Elements stay in their order.
constexpr auto kInOtherShape = std::to_array<std::string_view>(
    {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "view_as"});
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

/// Looks at one node after the other of a run, and follows where the samples of each value lie.
class Inspection {
 public:
  Inspection(const PlannedProgram& planned, std::size_t run, const std::string& samples)
      : planned_(planned), run_(run), graph_(planned.program.graph()), sizes_(graph_, samples) {}

  /// Empty: no objection.
  std::string objection(const Step& step) {
    const Node& node = graph_.nodes[step.node];
    if (turns_parameter(planned_, node)) return {};
    const auto used = parameters_of(planned_, node);
    if (step.texts) return "takes the mean of words, and has no rule";
    const auto read = tensors_read(step, graph_);
    if (std::ranges::none_of(read, [&](ValueId value) { return sizes_.depends(value); })) {
      if (used.empty()) return names_samples_elsewhere(node) ? "depends on the number of samples" : "";
      if (is_added_to_samples(node)) return {};
      if (!calls(node, "expand") || std::ranges::any_of(used, &UsedParameter::turned))
        return "makes of a parameter what all samples share";
      const bool leads = has_one_result(node) && place(result_of(node)) && place(result_of(node))->leads();
      return leads ? "" : "gives what does not count samples along its first dim";
    }
    for (const ValueId value : read) {
      if (sizes_.depends(value) && !place(value)) return "has samples along several dims, or parts of them";
    }
    const bool known = std::ranges::all_of(used, [&](const auto& one) { return has_rule(node, one); });
    if (!known) return "uses a parameter in a way without a rule";
    if (!is_one_of(node, kInOtherShape) && !calls(node, "expand") && names_samples(node))
      return "depends on the number of samples";
    return follow(node) ? "" : "is not known to keep samples apart";
  }

  /// Of what the run hands on; empty: no objection. After its steps.
  std::string objection_to_outputs() const {
    const auto& runs = planned_.plan.runs;
    if (run_ + 1 == runs.size()) {
      const auto found = place(planned_.plan.output);
      return found && found->leads() ? "" : "the program's output does not count samples along its first dim";
    }
    for (const auto& flowing : runs[run_ + 1].inputs) {
      if (flowing.value && places_.contains(*flowing.value))
        return "samples lie among one another between two modules";
    }
    return {};
  }

  /// Of a value of the run or before it; nothing where it has no samples, or where that is not clear.
  std::optional<SamplePlace> place(ValueId value) const {
    const auto noted = places_.find(value);
    return noted != places_.end() ? noted->second : sizes_.place(value);
  }

 private:
  using Found = std::optional<SamplePlace>;

  std::size_t rank(ValueId value) const { return sizes_.of(value).size(); }
  bool has_samples(ValueId value) const { return graph_[value].tensor && sizes_.depends(value); }

  std::vector<ValueId> with_samples(const Node& node) const {
    std::vector<ValueId> found;
    for (const auto& [name, argument] : node.inputs) {
      for (const auto& value : argument.values) {
        if (value && has_samples(*value)) found.push_back(*value);
      }
    }
    return found;
  }

  /// Notes where the samples of a node's results lie. False: that is not known.
  bool follow(const Node& node) {
    std::size_t index = 0;
    for (const auto& output : node.outputs) {
      if (output.kind == Output::Kind::none || output.kind == Output::Kind::number) continue;
      for (const ValueId value : output.values) {
        const auto made = place_made(node, value, index++);
        if (!made || !sizes_.fits(value, *made)) return false;
        if (sizes_.place(value) != made) places_[value] = *made;
      }
    }
    return true;
  }

  /// A number among the arguments that depends on the number of samples; `but`: an argument that may.
  bool names_samples(const Node& node, std::string_view but = {}) const {
    return std::ranges::any_of(node.inputs, [&](const auto& given) {
      return given.first != but && std::ranges::any_of(given.second.sizes, [&](const Size& size) {
               return size.value && graph_[*size.value].number && sizes_.depends(*graph_[*size.value].number);
             });
    });
  }
  /// Of what is made without samples: constants with a row for each are none of these, unless what fills them
  /// is the number of samples.
  bool names_samples_elsewhere(const Node& node) const {
    constexpr std::array<std::string_view, 5> kFilled = {"zeros", "ones", "full", "new_zeros", "expand"};
    return names_samples(node, is_one_of(node, kFilled) ? "size" : "");
  }

  bool has_rule(const Node& node, const UsedParameter& used) const {
    const auto is = [&](std::string_view argument) { return used.argument == argument; };
    const auto dims = rank(used.parameter);
    if (is_recurrent(node)) return is("params") && !used.turned && has_known_parameters(node);
    const auto given = with_samples(node);
    const bool leads = std::ranges::all_of(given, [&](ValueId value) { return place(value)->leads(); });
    if (leads || is_of_known_rows(given)) {
      if (calls(node, "linear")) return !used.turned && (is("bias") || (is("weight") && dims == 2));
      if (calls(node, "embedding"))
        return is("weight") && !used.turned && !node.find("scale_grad_by_freq") && !node.find("sparse");
      if (calls(node, "layer_norm")) return is("weight") || is("bias");
    }
    if (!leads) return false;
    if (calls(node, "addmm")) {
      const auto* beta = node.find("beta");
      const auto* alpha = node.find("alpha");
      const auto all = parameters_of(planned_, node);
      const bool has_weight = std::ranges::find(all, "mat2", &UsedParameter::argument) != all.end();
      return beta == nullptr && alpha == nullptr && dims <= 2 && has_weight &&
             ((is("self") && dims == 1) || is("mat2"));
    }
    if (calls(node, "mm")) return is("mat2");
    if (calls(node, "matmul")) return is("other") && dims == 2;
    if (calls(node, "group_norm")) return is("weight") || is("bias");
    if (calls(node, "add") || calls(node, "mul"))
      return !used.turned && node.find("alpha") == nullptr && is_broadcast(node, used.parameter, 0) &&
             !given.empty() && dims <= rank(given[0]);
    const bool convolves = node.target.find("conv") != std::string::npos && is_image_operator(node);
    return convolves && !node.target.ends_with(".padding") && (is("weight") || is("bias"));
  }

  /// Whether the sample of each row follows from its index and sizes behind: SampleOrder in
  /// tapped_operation.cpp.
  bool is_of_known_rows(const std::vector<ValueId>& given) const {
    return given.size() == 1 && place(given[0])->after[0] == place(given[0])->after[1];
  }

  /// Beside samples along `dim` of the result: it has no rows for them.
  bool is_broadcast(const Node& node, ValueId value, std::size_t dim) const {
    const auto missing = rank(result_of(node)) - rank(value);
    return rank(value) <= rank(result_of(node)) &&
           (dim < missing || sizes_.of(value)[dim - missing].constant() == 1);
  }

  bool is_image_operator(const Node& node) const {
    return std::ranges::any_of(kOfImages, [&](const OfImages& one) { return calls(node, one.name); });
  }

  /// Where the samples of result `index` lie; nothing: samples may meet.
  Found place_made(const Node& node, ValueId result, std::size_t index) const {
    const auto given = with_samples(node);
    if (given.empty()) return std::nullopt;
    if (is_recurrent(node)) return of_recurrence(node, index);
    if (is_one_of(node, kByElement)) return by_element(node, given);
    if (is_one_of(node, kAlongDims)) return along_other_dims(node, given);
    const ValueId first = given[0];
    const auto at = *place(first);
    if (is_one_of(node, kInOtherShape))
      return given.size() == 1 || calls(node, "view_as") ? sizes_.reshaped(first, at, result) : std::nullopt;
    if (calls(node, "expand")) return moved(at, rank(result) - rank(first));
    if (calls(node, "transpose") || calls(node, "permute") || calls(node, "t"))
      return in_other_order(node, first);
    if (calls(node, "addmm") || calls(node, "mm"))
      return only(given, tensor_of(node, calls(node, "mm") ? "self" : "mat1"), at.dim == 0);
    if (calls(node, "linear")) return only(given, tensor_of(node, "input"), at.dim + 1 < rank(first));
    if (calls(node, "embedding")) return only(given, tensor_of(node, "indices"), true);
    if (calls(node, "matmul")) return multiplied(node, "self", "other");
    if (calls(node, "bmm")) return multiplied(node, "self", "mat2");
    if (calls(node, "scaled_dot_product_attention")) return attended(node);
    if (calls(node, "layer_norm")) {
      const auto* shape = node.find("normalized_shape");
      return only(given, first, shape != nullptr && shape->sizes.size() + at.dim < rank(first));
    }
    if (calls(node, "group_norm")) return only(given, first, at.dim == 0 && rank(first) >= 2);
    if (calls(node, "pad") || calls(node, "constant_pad_nd")) {
      const auto* pad = node.find("pad");
      return only(given, first, pad != nullptr && pad->sizes.size() / 2 + at.dim < rank(first));
    }
    const bool of_images = std::ranges::any_of(
        kOfImages, [&](const OfImages& one) { return calls(node, one.name) && rank(first) == one.dims; });
    return only(given, first, of_images && at == SamplePlace{});
  }

  /// The place of the only value with samples, where it is `wanted` and `may` be.
  Found only(const std::vector<ValueId>& given, std::optional<ValueId> wanted, bool may) const {
    return may && given.size() == 1 && wanted == given[0] ? place(given[0]) : std::nullopt;
  }

  static SamplePlace moved(SamplePlace place, std::size_t dims) {
    place.dim += dims;
    return place;
  }

  /// All with samples have them at the same place of the result, and all else has no such dim.
  Found by_element(const Node& node, const std::vector<ValueId>& given) const {
    if (!has_one_result(node)) return std::nullopt;
    const auto dims = rank(result_of(node));
    Found found;
    for (const ValueId value : given) {
      if (rank(value) > dims) return std::nullopt;
      const auto here = moved(*place(value), dims - rank(value));
      if (found && *found != here) return std::nullopt;
      found = here;
    }
    for (const auto& [name, argument] : node.inputs) {
      for (const auto& value : argument.values) {
        if (!value || !graph_[*value].tensor || has_samples(*value)) continue;
        if (rank(*value) > 0 && !is_broadcast(node, *value, found->dim)) return std::nullopt;
      }
    }
    return found;
  }

  /// The dims that an argument names, from 0; nothing where one is not known, or where none is named.
  static std::optional<std::vector<std::size_t>> dims_named(const Node& node, std::size_t dims) {
    const auto* named = node.find("dim");
    if (named == nullptr) named = node.find("dims");
    if (named == nullptr || named->sizes.empty()) return std::nullopt;
    std::vector<std::size_t> found;
    for (const Size& dim : named->sizes) {
      const auto number = dim.number < 0 ? dim.number + static_cast<std::int64_t>(dims) : dim.number;
      if (dim.value || number < 0 || number >= static_cast<std::int64_t>(dims)) return std::nullopt;
      found.push_back(static_cast<std::size_t>(number));
    }
    return found;
  }

  Found along_other_dims(const Node& node, const std::vector<ValueId>& given) const {
    auto made = *place(given[0]);
    if (const auto* tensors = node.find("tensors")) {  // each has samples, at the same place
      for (const auto& value : tensors->values) {
        if (!value || !has_samples(*value) || rank(*value) != rank(given[0]) || place(*value) != made)
          return std::nullopt;
      }
    } else if (given.size() != 1) {
      return std::nullopt;
    }
    const bool stacks = calls(node, "stack");
    if (is_whole(node)) return made;
    const auto named = dims_named(node, rank(given[0]) + (stacks ? 1 : 0));
    if (!named) return std::nullopt;
    if (stacks) return moved(made, named->at(0) <= made.dim ? 1 : 0);
    if (std::ranges::find(*named, made.dim) != named->end()) return std::nullopt;
    const auto* keeps = node.find("keepdim");
    const bool reduces = is_one_of(node, std::to_array<std::string_view>({"sum", "mean", "amax", "amin"})) &&
                         (keeps == nullptr || keeps->booleans.empty() || !keeps->booleans[0]);
    if (reduces || calls(node, "select") || calls(node, "unbind"))
      made.dim -= static_cast<std::size_t>(
          std::ranges::count_if(*named, [&](std::size_t dim) { return dim < made.dim; }));
    return made;
  }

  /// `x[:]`, as PyTorch writes the first part of `x[:, 0]`.
  static bool is_whole(const Node& node) {
    const auto is = [&](const char* name, std::int64_t number) {
      const auto* argument = node.find(name);
      return argument == nullptr || argument->kind == Argument::Kind::none || number_of(node, name) == number;
    };
    return calls(node, "slice") && is("start", 0) && is("step", 1) &&
           is("end", std::numeric_limits<std::int64_t>::max());
  }

  Found in_other_order(const Node& node, ValueId given) const {
    auto made = *place(given);
    const auto dims = rank(given);
    if (calls(node, "permute")) {
      const auto order = dims_named(node, dims);
      if (!order || order->size() != dims) return std::nullopt;
      made.dim = static_cast<std::size_t>(std::ranges::find(*order, made.dim) - order->begin());
      return made.dim < dims ? Found(made) : std::nullopt;
    }
    std::array<std::int64_t, 2> swapped = {0, 1};
    if (calls(node, "transpose")) {
      const auto one = number_of(node, "dim0");
      const auto other = number_of(node, "dim1");
      if (!one || !other) return std::nullopt;
      swapped = {*one, *other};
    }
    for (auto& dim : swapped) dim += dim < 0 ? static_cast<std::int64_t>(dims) : 0;
    const auto now = static_cast<std::int64_t>(made.dim);
    if (now == swapped[0]) {
      made.dim = static_cast<std::size_t>(swapped[1]);
    } else if (now == swapped[1]) {
      made.dim = static_cast<std::size_t>(swapped[0]);
    }
    return made;
  }

  /// Matrix by matrix, of the same samples, or rows by something fixed.
  Found multiplied(const Node& node, const char* one, const char* other) const {
    const auto left = tensor_of(node, one);
    const auto right = tensor_of(node, other);
    if (!left || !right || !has_samples(*left)) return std::nullopt;
    const auto at = *place(*left);
    if (!has_samples(*right)) return rank(*right) <= 2 && at.dim + 1 < rank(*left) ? Found(at) : std::nullopt;
    return rank(*left) == rank(*right) && at.dim + 2 < rank(*left) && place(*right) == at ? Found(at)
                                                                                          : std::nullopt;
  }

  Found attended(const Node& node) const {
    const auto query = tensor_of(node, "query");
    if (!query || !has_samples(*query)) return std::nullopt;
    const auto at = *place(*query);
    if (at.dim + 2 >= rank(*query)) return std::nullopt;
    for (const char* name : {"key", "value"}) {
      const auto given = tensor_of(node, name);
      if (!given || !has_samples(*given) || rank(*given) != rank(*query) || place(*given) != at)
        return std::nullopt;
    }
    const auto mask = tensor_of(node, "attn_mask");
    if (!mask) return at;
    if (!has_samples(*mask)) return is_broadcast(node, *mask, at.dim) ? Found(at) : std::nullopt;
    return rank(*mask) == rank(*query) && place(*mask) == at ? Found(at) : std::nullopt;
  }

  /// Sequences [n, T, ...] or [T, n, ...]; states [layers, n, hidden].
  Found of_recurrence(const Node& node, std::size_t index) const {
    const auto* batch_first = node.find("batch_first");
    if (batch_first == nullptr || batch_first->booleans.size() != 1) return std::nullopt;
    const SamplePlace of_states{.dim = 1};
    const SamplePlace of_rows{.dim = batch_first->booleans[0] ? 0U : 1U};
    const auto rows = tensor_of(node, "input");
    const auto* states = node.find("hx");
    if (!rows || rank(*rows) != 3 || place(*rows) != of_rows || states == nullptr) return std::nullopt;
    for (const auto& value : states->values) {
      if (!value || rank(*value) != 3 || place(*value) != of_states) return std::nullopt;
    }
    return index == 0 ? of_rows : of_states;
  }

  /// Of an embedding of positions, alike for all samples: it is only added to what counts samples, in the
  /// same run.
  bool is_added_to_samples(const Node& node) const {
    if (!calls(node, "embedding") || !has_one_result(node)) return false;
    const ValueId result = result_of(node);
    const auto dims = rank(result);
    if (dims > 3 || (dims == 3 && sizes_.of(result)[0].constant() != 1)) return false;
    const auto uses = [&](const Node& other) {
      return std::ranges::any_of(other.inputs, [&](const auto& given) {
        return std::ranges::find(given.second.values, std::optional(result)) != given.second.values.end();
      });
    };
    const auto is_sum = [&](const Node& other) {
      const auto one = tensor_of(other, "self");
      const auto second = tensor_of(other, "other");
      if (!calls(other, "add") || other.find("alpha") != nullptr || !one || !second) return false;
      const auto at = place(*one == result ? *second : *one);
      return at == SamplePlace{} && rank(result_of(other)) == 3;
    };
    std::size_t here = 0;
    for (const Step& step : planned_.plan.runs[run_].steps) here += uses(graph_.nodes[step.node]) ? 1 : 0;
    std::size_t all = 0;
    for (const Node& other : graph_.nodes) {
      if (!uses(other)) continue;
      if (!is_sum(other)) return false;
      ++all;
    }
    return all > 0 && here == all && result != planned_.plan.output;
  }

  const PlannedProgram& planned_;
  std::size_t run_;
  const Graph& graph_;
  SampleSizes sizes_;
  std::map<ValueId, SamplePlace> places_;  // those that do not follow from sizes
};

}  // namespace

std::string sample_obstacle_of(const PlannedProgram& planned, std::size_t run) {
  const auto& graph = planned.program.graph();
  const auto samples = symbol_of_samples(planned);
  if (!samples) return "its inputs do not count samples alike";
  Inspection inspection(planned, run, *samples);
  for (const Step& step : planned.plan.runs[run].steps) {
    if (auto why = inspection.objection(step); !why.empty())
      return fmt::format("{} {}", graph.nodes[step.node].where(), why);
  }
  return inspection.objection_to_outputs();
}

std::optional<SamplePlace> place_of_samples(const PlannedProgram& planned, std::size_t run, ValueId value) {
  const auto samples = symbol_of_samples(planned);
  if (!samples) return std::nullopt;
  Inspection inspection(planned, run, *samples);
  for (const Step& step : planned.plan.runs[run].steps) inspection.objection(step);
  return inspection.place(value);
}

}  // namespace dtrain::models::exported
