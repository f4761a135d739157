#include "models/exported/slicing/linear_pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "core/counted.hpp"
#include "core/printable.hpp"
#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

/// Of one tensor and of numbers: each element's result depends on that element alone.
constexpr std::array<std::string_view, 21> kElementWise = {
    "relu",       "relu_",       "relu6", "gelu",     "gelu_",     "tanh",      "tanh_",
    "sigmoid",    "sigmoid_",    "silu",  "silu_",    "elu",       "elu_",      "selu",
    "leaky_relu", "leaky_relu_", "mish",  "hardtanh", "hardtanh_", "hardswish", "dropout"};

class Search {
 public:
  explicit Search(const PlannedProgram& planned) : planned_(planned), graph_(planned.program.graph()) {
    const auto& runs = planned.plan.runs;
    for (std::size_t run = 0; run < runs.size(); ++run) {
      for (std::size_t step = 0; step < runs[run].steps.size(); ++step) {
        const LinearPair::Place place{run, step};
        for (const ValueId value : tensors_read(runs[run].steps[step], graph_)) users_[value].push_back(place);
      }
    }
  }

  std::vector<LinearPair> pairs() const {
    std::vector<LinearPair> found;
    std::set<std::size_t> taken;  // nodes that are the second of a pair
    const auto& runs = planned_.plan.runs;
    for (std::size_t run = 0; run < runs.size(); ++run) {
      for (std::size_t step = 0; step < runs[run].steps.size(); ++step) {
        if (taken.contains(runs[run].steps[step].node)) continue;
        auto pair = pair_from({run, step});
        if (!pair) continue;
        taken.insert(runs[pair->second.run].steps[pair->second.step].node);
        found.push_back(std::move(*pair));
      }
    }
    return found;
  }

 private:
  const Node& node_at(const LinearPair::Place& place) const {
    return graph_.nodes[planned_.plan.runs[place.run].steps[place.step].node];
  }

  std::optional<ValueId> tensor(const Node& node, const char* name) const {
    const auto* argument = node.find(name);
    if (argument == nullptr || argument->kind != Argument::Kind::tensor) return std::nullopt;
    return argument->values.at(0);
  }

  bool is_own_parameter(const std::optional<ValueId>& value) const {
    const auto* input = value ? planned_.input_of(*value) : nullptr;
    return input != nullptr && input->kind == GraphInput::Kind::parameter &&
           planned_.uses_of(planned_.program.first_name(input->name)) == 1;
  }

  /// A linear layer whose parameters it alone uses.
  bool is_linear(const Node& node) const {
    if (!calls(node, "linear") || !is_own_parameter(tensor(node, "weight"))) return false;
    const auto bias = tensor(node, "bias");
    return !bias || is_own_parameter(bias);
  }

  std::int64_t extent(const Node& linear, std::size_t dim) const {
    return graph_[*tensor(linear, "weight")].tensor->sizes.at(dim).constant().value_or(0);
  }

  /// The one step that uses a value, unless the program returns it.
  std::optional<LinearPair::Place> only_user(ValueId value) const {
    const auto users = users_.find(value);
    if (users == users_.end() || users->second.size() != 1 || is_output(value)) return std::nullopt;
    return users->second[0];
  }

  bool is_output(ValueId value) const {
    const auto& same = planned_.plan.same;
    return value == planned_.plan.output || same[value] == same[planned_.plan.output];
  }

  static bool is_element_wise(const Node& node) {
    return std::ranges::any_of(kElementWise, [&](std::string_view name) { return calls(node, name); }) &&
           node.outputs.size() == 1 && node.outputs[0].kind == Output::Kind::tensor;
  }

  std::optional<LinearPair> pair_from(const LinearPair::Place& first) const {
    const Node& start = node_at(first);
    if (!is_linear(start)) return std::nullopt;
    LinearPair pair{.first = first, .features = extent(start, 0)};
    for (ValueId value = start.outputs.at(0).values.at(0);;) {
      pair.between.push_back(value);
      const auto user = only_user(value);
      if (!user) return std::nullopt;
      const Node& node = node_at(*user);
      if (is_linear(node) && tensor(node, "input") == value && extent(node, 1) == pair.features) {
        pair.second = *user;
        pair.name = fmt::format("{} and {}", title(start), title(node));
        return pair;
      }
      if (!is_element_wise(node)) return std::nullopt;
      if (calls(node, "dropout")) pair.dropouts.push_back(*user);
      value = node.outputs[0].values.at(0);
    }
  }

  static std::string title(const Node& node) {
    return printable(node.module.empty() ? node.name : node.module, 60);
  }

  const PlannedProgram& planned_;
  const Graph& graph_;
  std::map<ValueId, std::vector<LinearPair::Place>> users_;
};

}  // namespace

std::vector<LinearPair> find_linear_pairs(const PlannedProgram& planned) { return Search(planned).pairs(); }

std::string pairs_in_words(const std::vector<LinearPair>& pairs) {
  return fmt::format("{} of linear layers {} cut over the tensor axis: {}{}; the rest is on each rank",
                     counted(static_cast<std::int64_t>(pairs.size()), "pair"),
                     pairs.size() == 1 ? "is" : "are", pairs.front().name,
                     pairs.size() > 1 ? ", ... " + pairs.back().name : "");
}

}  // namespace dtrain::models::exported
