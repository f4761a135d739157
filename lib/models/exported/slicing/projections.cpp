#include "models/exported/slicing/projections.hpp"

#include <algorithm>

#include "models/exported/operators.hpp"

namespace dtrain::models::exported {

bool Projections::reach(const std::vector<HeadWalk::Source>& sources) {
  std::set<Place> views;
  const bool found = std::ranges::all_of(sources, [&](const HeadWalk::Source& source) {
    if (!views.insert(source.view).second) return true;
    return source.of_module ? from_module(source) : from_flat(source);
  });
  return found && has_all_parts();
}

/// Whether queries, keys and values are all that a joint projection gives: the rest of it is cut as well.
bool Projections::has_all_parts() const {
  constexpr std::int64_t kOfModule = 3;
  return (picked_ == 0 || picked_ == kOfModule) && std::ranges::all_of(made_.splits, [&](const Place& place) {
           return std::ranges::all_of(search_.node_at(place).outputs.at(0).values,
                                      [&](ValueId part) { return parts_.contains(part); });
         });
}

/// The node that makes a value [.., width] for what comes behind alone; the value is cut.
std::optional<Place> Projections::before(ValueId value, std::int64_t width) {
  const auto place = search_.producer(value);
  if (!place || !search_.only_user(value) || search_.dims(value) > 3 || search_.size(value, -1) != width)
    return std::nullopt;
  cut_last(value);
  return place;
}

/// From [.., heads * width] to the linear layer.
bool Projections::from_flat(const HeadWalk::Source& source) {
  ValueId value = *tensor_of(search_.node_at(source.view), "self");
  const auto width = *search_.size(value, -1);
  if (source.parts > 1) return joint_projection(value, width, source.parts);
  for (;;) {
    const auto place = before(value, width);
    if (!place) return false;
    const Node& node = search_.node_at(*place);
    if (search_.is_linear(node)) {
      made_.projections.push_back({*place, 1});
      return true;
    }
    if (search_.splits_last_dim(node)) {
      parts_.insert(value);
      return split(*place, node, source.made.heads);
    }
    const auto self = tensor_of(node, "self");
    if (!self) return false;
    if (is_reshape(node)) {
      made_.reshapes.push_back(*place);
    } else if (calls_one(node, {"mul", "div"})) {
      const auto other = tensor_of(node, "other");
      if (other && search_.dims(*other) > 0) return false;
      if (other && search_.may_be_trained(*other)) made_.beside.push_back({*place, *other});
    } else if (!is_copy(node)) {
      return false;
    }
    value = *self;
  }
}

/// Of equal parts, each of which is one of queries, keys and values.
bool Projections::split(const Place& place, const Node& node, std::int64_t heads) {
  const auto [known, is_new] = heads_of_split_.emplace(place, heads);
  if (!is_new) return known->second == heads;
  const auto& parts = node.outputs.at(0).values;
  if (parts.empty()) return false;
  const auto width = search_.size(parts[0], -1);
  const bool alike =
      width && std::ranges::all_of(parts, [&](ValueId part) { return search_.size(part, -1) == width; });
  if (!alike) return false;
  made_.splits.push_back(place);
  const auto count = static_cast<std::int64_t>(parts.size());
  return joint_projection(*tensor_of(node, "self"), count * *width, count);
}

/// From [.., width], in parts behind one another, to the linear layer that makes it.
bool Projections::joint_projection(ValueId value, std::int64_t width, std::int64_t parts) {
  for (;;) {
    const auto place = before(value, width);
    if (!place) return false;
    const Node& node = search_.node_at(*place);
    if (search_.is_linear(node)) {
      made_.projections.push_back({*place, parts});
      return true;
    }
    if (!is_reshape(node)) return false;
    made_.reshapes.push_back(*place);
    value = *tensor_of(node, "self");
  }
}

/// The node that makes a value, where it alone is used by what comes behind, and its input.
std::optional<Projections::Link> Projections::link(ValueId value) const {
  const auto place = search_.producer(value);
  if (!place) return std::nullopt;
  const Node& node = search_.node_at(*place);
  const auto self = tensor_of(node, "self");
  if (!self || !has_one_result(node)) return std::nullopt;
  return Link{*place, &node, *self};
}

std::optional<Projections::Link> Projections::step_back(ValueId value) {
  if (!search_.only_user(value)) return std::nullopt;
  cut_last(value);
  return link(value);
}

/// nn.MultiheadAttention: a view makes [n, heads, T, width] of [n * heads, T, width], which is one of three
/// parts of [3, T, n, heads * width].
bool Projections::from_module(const HeadWalk::Source& source) {
  const ValueId value = *tensor_of(search_.node_at(source.view), "self");
  const auto width = search_.size(value, -1).value_or(0) * source.made.heads;
  if (!search_.only_user(value)) return false;
  cut(value, 0);
  const auto turned = link(value);
  if (!turned || !exchanges(*turned->node, 0, 1, 3) || !search_.only_user(turned->self)) return false;
  cut(turned->self, 1);
  const auto view = link(turned->self);
  if (!view || !is_reshape(*view->node) || search_.dims(view->self) != 3 ||
      search_.size(view->self, 2) != width || !search_.only_user(view->self))
    return false;
  made_.reshapes.push_back(view->place);
  cut_last(view->self);
  const auto part = link(view->self);
  const bool picks = part && calls(*part->node, "select") && number_of(*part->node, "dim") == 0 &&
                     number_of(*part->node, "index") == picked_;
  if (!picks || (picked_ > 0 && part->self != stacked_)) return false;
  stacked_ = part->self;
  return ++picked_ > 1 || of_stack(part->self, width);
}

/// From [3, T, n, width], which queries, keys and values are picked from.
bool Projections::of_stack(ValueId value, std::int64_t width) {
  constexpr std::size_t kParts = 3;
  if (search_.users(value).size() != kParts || search_.is_returned(value)) return false;
  cut_last(value);
  auto next = link(value);
  if (next && is_copy(*next->node)) next = step_back(next->self);
  if (!next || !calls(*next->node, "squeeze")) return false;
  next = step_back(next->self);
  if (!next || !exchanges(*next->node, 0, 3, 5)) return false;
  next = step_back(next->self);
  if (!next || !calls(*next->node, "unsqueeze") || number_of(*next->node, "dim") != 0) return false;
  next = step_back(next->self);
  if (!next || !is_reshape(*next->node)) return false;
  made_.reshapes.push_back(next->place);
  return joint_projection(next->self, static_cast<std::int64_t>(kParts) * width, kParts);
}

}  // namespace dtrain::models::exported
