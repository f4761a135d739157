#include "models/exported/slicing/node_search.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/printable.hpp"
#include "models/exported/operators.hpp"

namespace dtrain::models::exported {

bool is_reshape(const Node& node) {
  constexpr std::array<std::string_view, 5> kNames = {"view", "reshape", "unflatten", "flatten",
                                                      "_unsafe_view"};
  return has_one_result(node) &&
         std::ranges::any_of(kNames, [&](std::string_view name) { return calls(node, name); });
}

bool calls_one(const Node& node, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return calls(node, name); });
}

bool is_element_wise(const Node& node) {
  return has_one_result(node) &&
         calls_one(node,
                   {"relu",       "relu_",       "relu6",     "gelu",      "gelu_", "tanh",       "tanh_",
                    "sigmoid",    "sigmoid_",    "silu",      "silu_",     "elu",   "elu_",       "selu",
                    "hardtanh",   "dropout",     "mish",      "hardtanh_", "add",   "sub",        "mul",
                    "leaky_relu", "leaky_relu_", "hardswish", "div",       "pow",   "square",     "exp",
                    "erf",        "neg",         "softplus",  "log1p",     "rsqrt", "hardsigmoid"});
}

std::optional<std::size_t> dim_of(const Node& node, std::size_t dims, std::int64_t otherwise,
                                  const char* argument) {
  const auto given = node.find(argument) == nullptr ? otherwise : number_of(node, argument);
  const auto count = static_cast<std::int64_t>(dims);
  if (!given || *given < -count || *given >= count) return std::nullopt;
  return static_cast<std::size_t>((*given + count) % count);
}

bool is_split(const Node& node) { return calls_one(node, {"split", "chunk", "split_with_sizes"}); }

bool is_copy(const Node& node) {
  return calls_one(node, {"contiguous", "clone", "to", "float", "type_as", "alias"});
}

bool permutes(const Node& node, const std::array<std::int64_t, 4>& order) {
  const auto* dims = calls(node, "permute") ? node.find("dims") : nullptr;
  return dims != nullptr && std::ranges::equal(dims->sizes, order, [](const Size& given, std::int64_t dim) {
           return !given.value && given.number == dim;
         });
}

bool exchanges(const Node& node, std::int64_t a, std::int64_t b, std::int64_t dims) {
  if (calls(node, "transpose")) {
    const auto from = number_of(node, "dim0");
    const auto to = number_of(node, "dim1");
    if (!from || !to) return false;
    const auto one = (*from + dims) % dims;
    const auto other = (*to + dims) % dims;
    return (one == a && other == b) || (one == b && other == a);
  }
  if (dims != 4) return false;
  std::array<std::int64_t, 4> order = {0, 1, 2, 3};
  std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
  return permutes(node, order);
}

bool is_turned(const Node& linear) {
  const auto is_one = [&](const char* factor) {
    const auto* given = linear.find(factor);
    return given == nullptr || number_of(linear, factor) == 1 ||
           (given->kind == Argument::Kind::real && given->reals.at(0) == 1.0);
  };
  return calls(linear, "addmm") && is_one("beta") && is_one("alpha");
}

std::optional<ValueId> linear_input(const Node& linear) {
  return tensor_of(linear, is_turned(linear) ? "mat1" : "input");
}

std::optional<ValueId> linear_weight(const Node& linear) {
  return tensor_of(linear, is_turned(linear) ? "mat2" : "weight");
}

std::optional<ValueId> linear_bias(const Node& linear) {
  return tensor_of(linear, is_turned(linear) ? "self" : "bias");
}

NodeSearch::NodeSearch(const PlannedProgram& planned)
    : planned_(planned), memory_(planned.program.graph().values.size()) {
  for (const GraphInput& input : graph().inputs) {
    if (input.kind != GraphInput::Kind::parameter) untrained_.insert(root_of(input.value));
  }
  const auto& runs = planned.plan.runs;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (std::size_t step = 0; step < runs[run].steps.size(); ++step) {
      const Place place{run, step};
      places_.push_back(place);
      const auto read = tensors_read(runs[run].steps[step], graph());
      for (const ValueId value : read) users_[value].push_back(place);
      for (const auto& output : node_at(place).outputs) {
        if (output.kind == Output::Kind::number) continue;
        for (const ValueId value : output.values) producers_.emplace(value, place);
      }
      follow_training(runs[run].steps[step], read);
    }
  }
}

ValueId NodeSearch::root_of(ValueId value) const { return memory_.root(planned_.plan.same[value]); }

/// A step of trained values trains what it gives, and all that shares the memory which it writes to.
void NodeSearch::follow_training(const Step& step, const std::vector<ValueId>& read) {
  const Node& node = graph().nodes[step.node];
  const bool detaches = calls(node, "detach");
  const bool trained =
      !detaches && std::ranges::any_of(read, [this](ValueId value) { return may_be_trained(value); });
  for (const auto& output : node.outputs) {
    if (output.kind == Output::Kind::number) continue;
    for (const ValueId value : output.values) untrained_.insert(root_of(value));
  }
  if (detaches) return;
  for (const auto& shared : shared_memory(node, step.handle.schema()))
    memory_.join(planned_.plan.same[shared.output], planned_.plan.same[shared.input]);
  if (!trained) return;
  for (const auto& output : node.outputs) {
    if (output.kind == Output::Kind::number) continue;
    for (const ValueId value : output.values) untrained_.erase(root_of(value));
  }
}

bool NodeSearch::may_be_trained(ValueId value) const {
  const auto& facts = graph()[value].tensor;
  if (!facts || !at::isFloatingType(facts->type)) return false;
  return !untrained_.contains(root_of(value));  // also where fusion has left no step that makes it
}

std::optional<Place> NodeSearch::producer(ValueId value) const {
  const auto place = producers_.find(value);
  return place == producers_.end() ? std::nullopt : std::optional(place->second);
}

std::optional<Place> NodeSearch::only_user(ValueId value) const {
  const auto found = users_.find(value);
  if (found == users_.end() || found->second.size() != 1 || is_returned(value)) return std::nullopt;
  return found->second[0];
}

bool NodeSearch::is_own_parameter(const std::optional<ValueId>& value) const {
  const auto* input = value ? planned_.input_of(*value) : nullptr;
  return input != nullptr && input->kind == GraphInput::Kind::parameter &&
         planned_.uses_of(planned_.program.first_name(input->name)) == 1;
}

std::vector<Place> NodeSearch::users(ValueId value) const {
  const auto found = users_.find(value);
  return found == users_.end() ? std::vector<Place>() : found->second;
}

bool NodeSearch::only_users(ValueId value, const std::set<Place>& nodes) const {
  return !is_returned(value) &&
         std::ranges::all_of(users(value), [&](const Place& user) { return nodes.contains(user); });
}

bool NodeSearch::splits_last_dim(const Node& node) const {
  const auto self = is_split(node) ? tensor_of(node, "self") : std::nullopt;
  return self && dims(*self) > 0 && dim_of(node, dims(*self)) == dims(*self) - 1;
}

bool NodeSearch::is_alike_along(ValueId value, std::size_t dim, std::size_t dims) const {
  const auto from_last = static_cast<int>(dims - dim);
  return static_cast<int>(this->dims(value)) < from_last || size(value, -from_last) == 1;
}

bool NodeSearch::is_returned(ValueId value) const {
  const auto& same = planned_.plan.same;
  return same[value] == same[planned_.plan.output];
}

bool NodeSearch::is_linear(const Node& node) const {
  if (!calls(node, "linear") && !is_turned(node)) return false;
  const auto weight = linear_weight(node);
  if (!is_own_parameter(weight) || dims(*weight) != 2) return false;
  const auto bias = linear_bias(node);
  return !bias || (is_own_parameter(bias) && dims(*bias) == 1 && size(*bias, 0) == outputs_of(node));
}

std::int64_t NodeSearch::outputs_of(const Node& linear) const {
  return size(*linear_weight(linear), is_turned(linear) ? 1 : 0).value_or(0);
}

std::int64_t NodeSearch::inputs_of(const Node& linear) const {
  return size(*linear_weight(linear), is_turned(linear) ? 0 : 1).value_or(0);
}

std::optional<std::int64_t> NodeSearch::size(ValueId value, int dim) const {
  const auto place = dim < 0 ? static_cast<std::int64_t>(dims(value)) + dim : dim;
  if (place < 0 || place >= static_cast<std::int64_t>(dims(value))) return std::nullopt;
  return graph()[value].tensor->sizes[static_cast<std::size_t>(place)].constant();
}

std::size_t NodeSearch::dims(ValueId value) const {
  const auto& facts = graph()[value].tensor;
  return facts ? facts->sizes.size() : 0;
}

bool NodeSearch::same_shape(ValueId one, ValueId other) const {
  const auto& a = graph()[one].tensor;
  const auto& b = graph()[other].tensor;
  return a && b && a->sizes == b->sizes;
}

std::string NodeSearch::title(const Node& node) {
  return printable(node.module.empty() ? node.name : node.module, 60);
}

}  // namespace dtrain::models::exported
