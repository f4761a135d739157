#include "models/exported/slicing/linear_pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

/// Of one tensor and of numbers: each element's result depends on that element alone.
constexpr std::array<std::string_view, 21> kElementWise = {
    "relu",       "relu_",       "relu6", "gelu",     "gelu_",     "tanh",      "tanh_",
    "sigmoid",    "sigmoid_",    "silu",  "silu_",    "elu",       "elu_",      "selu",
    "leaky_relu", "leaky_relu_", "mish",  "hardtanh", "hardtanh_", "hardswish", "dropout"};

bool is_element_wise(const Node& node) {
  return std::ranges::any_of(kElementWise, [&](std::string_view name) { return calls(node, name); }) &&
         node.outputs.size() == 1 && node.outputs[0].kind == Output::Kind::tensor;
}

std::optional<LinearPair> pair_from(const NodeSearch& search, const Place& first) {
  const Node& start = search.node_at(first);
  if (!search.is_linear(start)) return std::nullopt;
  LinearPair pair{.first = first, .features = search.extent(start, 0)};
  for (ValueId value = start.outputs.at(0).values.at(0);;) {
    pair.between.push_back(value);
    const auto user = search.only_user(value);
    if (!user) return std::nullopt;
    const Node& node = search.node_at(*user);
    if (search.is_linear(node) && tensor_of(node, "input") == value &&
        search.extent(node, 1) == pair.features) {
      pair.second = *user;
      pair.name = fmt::format("{} and {}", NodeSearch::title(start), NodeSearch::title(node));
      return pair;
    }
    if (!is_element_wise(node)) return std::nullopt;
    if (calls(node, "dropout")) pair.dropouts.push_back(*user);
    value = node.outputs[0].values.at(0);
  }
}

}  // namespace

std::vector<LinearPair> find_linear_pairs(const NodeSearch& search) {
  std::vector<LinearPair> found;
  for (const Place& place : search.places()) {
    const bool taken = std::ranges::find(found, place, &LinearPair::second) != found.end();
    auto pair = taken ? std::nullopt : pair_from(search, place);
    if (pair) found.push_back(std::move(*pair));
  }
  return found;
}

}  // namespace dtrain::models::exported
