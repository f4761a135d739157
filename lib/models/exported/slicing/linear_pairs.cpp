#include "models/exported/slicing/linear_pairs.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

/// Follows what goes into a linear layer back to those that it comes from.
class Following {
 public:
  Following(const NodeSearch& search, const Place& second) : search_(search) {
    const Node& end = search.node_at(second);
    pair_.second = second;
    pair_.features = search.inputs_of(end);
    nodes_.insert(second);
    add(*linear_input(end));
  }

  std::optional<LinearPair> pair() {
    for (std::size_t next = 0; next < pair_.between.size(); ++next) {
      if (!follow(pair_.between[next])) return std::nullopt;
    }
    const auto stays_between = [&](ValueId value) { return search_.only_users(value, nodes_); };
    if (pair_.firsts.empty() || !std::ranges::all_of(pair_.between, stays_between)) return std::nullopt;
    std::ranges::sort(pair_.firsts, {}, &LinearPair::First::place);
    for (const auto& first : pair_.firsts)
      pair_.name += (pair_.name.empty() ? "" : ", ") + NodeSearch::title(search_.node_at(first.place));
    pair_.name += " and " + NodeSearch::title(search_.node_at(pair_.second));
    return std::move(pair_);
  }

 private:
  void add(ValueId value) {
    if (std::ranges::find(pair_.between, value) == pair_.between.end()) pair_.between.push_back(value);
  }

  bool has_features(ValueId value, std::int64_t parts = 1) const {
    return search_.dims(value) >= 1 && search_.size(value, -1) == parts * pair_.features;
  }

  /// Looks at the node that makes a value; the first time.
  bool follow(ValueId value) {
    const auto place = search_.producer(value);
    if (!place) return false;
    const Node& node = search_.node_at(*place);
    if (search_.is_linear(node)) return begins(*place, node, joint_.contains(value) ? joint_.at(value) : 1);
    if (!nodes_.insert(*place).second) return true;
    if (search_.splits_last_dim(node)) return splits(*place, node);
    if (is_reshape(node)) {
      const ValueId self = *tensor_of(node, "self");
      if (!has_features(self)) return false;
      pair_.reshapes.push_back(*place);
      add(self);
      return true;
    }
    return is_element_wise(node) && computes(*place, node);
  }

  bool begins(const Place& place, const Node& linear, std::int64_t parts) {
    if (search_.outputs_of(linear) != parts * pair_.features) return false;
    pair_.firsts.push_back({place, parts});
    return true;
  }

  /// Of a linear layer's result, into parts of `features` each.
  bool splits(const Place& place, const Node& node) {
    const ValueId joint = *tensor_of(node, "self");
    const auto& made = node.outputs.at(0).values;
    const auto parts = static_cast<std::int64_t>(made.size());
    const auto source = search_.producer(joint);
    const bool alike = has_features(joint, parts) &&
                       std::ranges::all_of(made, [&](ValueId part) { return has_features(part); });
    if (!alike || !source || !search_.is_linear(search_.node_at(*source))) return false;
    for (const ValueId part : made) add(part);
    pair_.splits.push_back(place);
    joint_.emplace(joint, parts);
    add(joint);
    return true;
  }

  /// Its tensors have all features, or are alike for each of them.
  bool computes(const Place& place, const Node& node) {
    const ValueId result = result_of(node);
    const auto dims = search_.dims(result);
    for (const auto& [name, argument] : node.inputs) {
      for (const auto& given : argument.values) {
        if (!given) continue;
        if (has_features(*given) && search_.dims(*given) == dims) {
          add(*given);
        } else if (!search_.is_alike_along(*given, dims - 1, dims)) {
          return false;
        } else if (search_.may_be_trained(*given)) {
          pair_.beside.push_back({place, *given});
        }
      }
    }
    if (calls(node, "dropout")) pair_.dropouts.push_back(place);
    return true;
  }

  const NodeSearch& search_;
  LinearPair pair_;
  std::set<Place> nodes_;                  // the second layer, and what lies between
  std::map<ValueId, std::int64_t> joint_;  // what a first layer gives in so many parts
};

}  // namespace

std::vector<LinearPair> find_linear_pairs(const NodeSearch& search) {
  std::vector<LinearPair> found;
  std::set<Place> taken;
  for (const Place& place : search.places()) {
    if (taken.contains(place) || !search.is_linear(search.node_at(place))) continue;
    auto pair = Following(search, place).pair();
    const auto is_taken = [&](const LinearPair::First& first) { return taken.contains(first.place); };
    if (!pair || std::ranges::any_of(pair->firsts, is_taken)) continue;
    taken.insert(place);
    for (const auto& first : pair->firsts) taken.insert(first.place);
    found.push_back(std::move(*pair));
  }
  return found;
}

}  // namespace dtrain::models::exported
