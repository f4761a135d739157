#include "models/exported/slicing/linear_pairs.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

/// Each element's result depends on that element alone, of each tensor given.
constexpr std::array<std::string_view, 33> kElementWise = {
    "relu",      "relu_",    "relu6",    "gelu",      "gelu_",      "tanh",   "tanh_",
    "sigmoid",   "sigmoid_", "silu",     "silu_",     "elu",        "elu_",   "selu",
    "hardtanh",  "dropout",  "mish",     "hardtanh_", "leaky_relu", "add",    "leaky_relu_",
    "hardswish", "mul",      "sub",      "div",       "pow",        "square", "exp",
    "erf",       "neg",      "softplus", "log1p",     "hardsigmoid"};

bool is_element_wise(const Node& node) {
  return has_one_result(node) &&
         std::ranges::any_of(kElementWise, [&](std::string_view name) { return calls(node, name); });
}

/// Follows the features of a linear layer to the next one.
class Following {
 public:
  Following(const NodeSearch& search, const Place& first) : search_(search) {
    const Node& start = search.node_at(first);
    pair_.first = first;
    pair_.features = search.outputs_of(start);
    add(result_of(start));
  }

  std::optional<LinearPair> pair() {
    bool ends = false;
    while (!ends_badly_ && !waiting_.empty()) {
      const Place place = *waiting_.begin();
      waiting_.erase(waiting_.begin());
      const Node& node = search_.node_at(place);
      if (search_.is_linear(node) && !ends && search_.inputs_of(node) == pair_.features &&
          values_.contains(*linear_input(node))) {
        pair_.second = place;
        ends = true;
      } else if (ends || !follow(place, node)) {
        return std::nullopt;
      }
    }
    if (ends_badly_ || !ends) return std::nullopt;
    pair_.name = NodeSearch::title(search_.node_at(pair_.first)) + " and " +
                 NodeSearch::title(search_.node_at(pair_.second));
    return std::move(pair_);
  }

 private:
  void add(ValueId value) {
    values_.insert(value);
    pair_.between.push_back(value);
    ends_badly_ = ends_badly_ || search_.is_returned(value);
    for (const Place& user : search_.users(value)) waiting_.insert(user);
  }

  bool follow(const Place& place, const Node& node) {
    if (is_reshape(node)) {
      const ValueId made = result_of(node);
      if (search_.dims(made) < 1 || search_.size(made, -1) != pair_.features) return false;
      pair_.reshapes.push_back(place);
    } else if (!is_element_wise(node)) {
      return false;
    }
    for (const auto& [name, argument] : node.inputs) {
      for (const auto& given : argument.values) {
        if (!given) continue;
        const bool is_number = !values_.contains(*given) && search_.dims(*given) == 0;
        if (is_number && !search_.may_be_trained(*given)) continue;
        const bool alike = search_.dims(*given) == search_.dims(result_of(node)) || is_reshape(node);
        if (!values_.contains(*given) || !alike) return false;
      }
    }
    if (calls(node, "dropout")) pair_.dropouts.push_back(place);
    add(result_of(node));
    return true;
  }

  const NodeSearch& search_;
  LinearPair pair_;
  std::set<ValueId> values_;
  std::set<Place> waiting_;
  bool ends_badly_ = false;
};

}  // namespace

std::vector<LinearPair> find_linear_pairs(const NodeSearch& search) {
  std::vector<LinearPair> found;
  for (const Place& place : search.places()) {
    const bool taken = std::ranges::find(found, place, &LinearPair::second) != found.end();
    const bool begins = !taken && search.is_linear(search.node_at(place));
    auto pair = begins ? Following(search, place).pair() : std::nullopt;
    if (pair) found.push_back(std::move(*pair));
  }
  return found;
}

}  // namespace dtrain::models::exported
