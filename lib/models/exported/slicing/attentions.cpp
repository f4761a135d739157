#include "models/exported/slicing/attentions.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

constexpr int kHeads = 1;  // dim of [n, heads, T, width]

bool calls_one(const Node& node, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return calls(node, name); });
}

/// Whether a node is a permutation of a tensor of four dims.
bool permutes(const Node& node, const std::array<std::int64_t, 4>& order) {
  const auto* dims = calls(node, "permute") ? node.find("dims") : nullptr;
  return dims != nullptr && std::ranges::equal(dims->sizes, order, [](const Size& given, std::int64_t dim) {
           return !given.value && given.number == dim;
         });
}

/// Whether a node exchanges two dims, both counted from the first, of a tensor of `dims`.
bool exchanges(const Node& node, std::int64_t a, std::int64_t b, std::int64_t dims = 4) {
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

bool copies(const Node& node) { return calls_one(node, {"contiguous", "clone"}); }

/// The way from one attention's core to its linear layers.
class Tracing {
 public:
  explicit Tracing(const NodeSearch& search) : search_(search) {}

  /// From `softmax(q k^T) v` or the like at `place`.
  std::optional<CutAttention> from(const Place& place) {
    const Node& node = search_.node_at(place);
    const bool found = calls(node, "scaled_dot_product_attention") ? of_operator(place, node)
                       : calls(node, "matmul")                     ? of_products(node)
                                                                   : false;
    return found && all_three() ? std::optional(std::move(made_)) : std::nullopt;
  }

 private:
  void cut(ValueId value, std::size_t dim) { made_.between.push_back({value, dim}); }
  void cut_last(ValueId value) { cut(value, search_.dims(value) - 1); }

  /// Whether what all ranks have whole is the same for each head, and has no gradient from each.
  bool is_alike(ValueId value) const {
    const auto dims = search_.dims(value);
    const bool alike = dims < 3 || (dims <= 4 && search_.size(value, -3) == 1);
    return alike && !search_.may_be_trained(value);
  }

  bool of_operator(const Place& place, const Node& node) {
    const auto query = tensor_of(node, "query");
    if (!query || search_.dims(*query) != 4 || !search_.size(*query, kHeads) || !search_.size(*query, 3))
      return false;
    made_.heads = *search_.size(*query, kHeads);
    made_.width = *search_.size(*query, 3);
    const auto mask = tensor_of(node, "attn_mask");
    const auto* grouped = node.find("enable_gqa");
    if ((grouped != nullptr && grouped->booleans.at(0)) || (mask && !is_alike(*mask))) return false;
    made_.dropouts.push_back(place);
    for (const char* name : {"query", "key", "value"}) {
      const auto value = tensor_of(node, name);
      if (!value || !back(*value)) return false;
    }
    return forward(result_of(node));
  }

  bool of_products(const Node& product) {
    const auto query = tensor_of(product, "self");
    const auto turned = tensor_of(product, "other");
    if (!query || !turned || search_.dims(*query) != 4 || search_.dims(*turned) != 4) return false;
    const auto heads = search_.size(*query, kHeads);
    const auto width = search_.size(*query, 3);
    const auto turning = search_.producer(*turned);
    if (!heads || !width || !turning || !exchanges(search_.node_at(*turning), 2, 3) ||
        !search_.only_user(*turned))
      return false;
    made_.heads = *heads;
    made_.width = *width;
    cut(*turned, kHeads);
    const auto key = tensor_of(search_.node_at(*turning), "self");
    if (!key || !back(*query) || !back(*key)) return false;
    return scores(result_of(product));
  }

  /// From the scores [n, heads, T, S] through softmax to the product with the values.
  bool scores(ValueId value) {
    for (bool weighed = false;;) {
      cut(value, kHeads);
      const auto user = search_.only_user(value);
      if (!user) return false;
      const Node& node = search_.node_at(*user);
      if (calls(node, "matmul")) {
        const auto values = tensor_of(node, "other");
        return weighed && tensor_of(node, "self") == value && values && back(*values) &&
               forward(result_of(node));
      }
      if (!has_one_result(node) || tensor_of(node, calls(node, "dropout") ? "input" : "self") != value)
        return false;
      if (calls_one(node, {"softmax", "_softmax", "_safe_softmax"})) {
        const auto dim = number_of(node, "dim");
        if (dim != -1 && dim != 3) return false;
        weighed = true;
      } else if (calls(node, "dropout")) {
        made_.dropouts.push_back(*user);
      } else if (calls_one(node, {"add", "sub", "mul", "div", "masked_fill"})) {
        for (const char* other : {"other", "mask", "value"}) {
          const auto beside = tensor_of(node, other);
          if (beside && !is_alike(*beside)) return false;
        }
      } else if (!calls_one(node, {"to", "float", "type_as"}) && !copies(node)) {
        return false;
      }
      value = result_of(node);
    }
  }

  /// What makes a value out of another of the same shape, head by head.
  bool keeps_shape(const Node& node) const {
    if (copies(node)) return true;
    if (!calls_one(node, {"mul", "div"})) return false;
    const auto other = tensor_of(node, "other");
    return !other || (search_.dims(*other) == 0 && !search_.may_be_trained(*other));
  }

  /// From queries, keys or values [n, heads, T, width] to the linear layer.
  bool back(ValueId value) {
    const bool heads = search_.dims(value) == 4 && search_.size(value, kHeads) == made_.heads &&
                       search_.size(value, 3) == made_.width;
    if (!heads) return false;
    bool turned = false;
    for (;;) {
      const bool flat = search_.dims(value) < 4;
      cut(value, flat ? search_.dims(value) - 1 : turned ? 2 : kHeads);
      const auto place = search_.producer(value);
      if (!place || !search_.only_user(value)) return false;
      const Node& node = search_.node_at(*place);
      if (flat && search_.is_linear(node)) {
        if (search_.outputs_of(node) != made_.heads * made_.width) return false;
        made_.projections.push_back({*place, 1});
        return true;
      }
      if (flat && calls_one(node, {"split", "chunk", "split_with_sizes"})) return split(*place, node);
      const auto self = tensor_of(node, "self");
      if (!self) return false;
      if (!flat && !turned && exchanges(node, 1, 2)) {
        turned = true;
      } else if (!turned && !flat && is_reshape(node)) {
        return of_module(*place, *self);
      } else if ((turned || flat) && is_reshape(node)) {
        if (search_.dims(*self) > 3 || search_.size(*self, -1) != made_.heads * made_.width) return false;
        made_.reshapes.push_back(*place);
      } else if (!keeps_shape(node)) {
        return false;
      }
      value = *self;
    }
  }

  bool split(const Place& place, const Node& node) {
    constexpr std::int64_t kParts = 3;
    const auto joint = tensor_of(node, "self");
    const auto& parts = node.outputs.at(0).values;
    const bool alike =
        parts.size() == static_cast<std::size_t>(kParts) && std::ranges::all_of(parts, [&](ValueId part) {
          return search_.dims(part) == 3 && search_.size(part, 2) == made_.heads * made_.width;
        });
    if (!joint || !alike) return false;
    if (std::ranges::find(made_.splits, place) != made_.splits.end()) return true;
    made_.splits.push_back(place);
    return joint_projection(*joint);
  }

  /// From [..., 3 * heads * width] to the linear layer that makes it.
  bool joint_projection(ValueId value) {
    constexpr std::int64_t kParts = 3;
    for (;;) {
      const auto source = search_.producer(value);
      if (!source || !search_.only_user(value) || search_.dims(value) > 3 ||
          search_.size(value, -1) != kParts * made_.heads * made_.width)
        return false;
      cut_last(value);
      const Node& node = search_.node_at(*source);
      if (search_.is_linear(node)) {
        made_.projections.push_back({*source, kParts});
        return true;
      }
      if (!is_reshape(node)) return false;
      made_.reshapes.push_back(*source);
      value = *tensor_of(node, "self");
    }
  }

  /// The node that makes a value, where it alone is used by what comes behind, and its input.
  struct Link {
    Place place;
    const Node* node;
    ValueId self;
  };
  std::optional<Link> link(ValueId value) const {
    const auto place = search_.producer(value);
    if (!place) return std::nullopt;
    const Node& node = search_.node_at(*place);
    const auto self = tensor_of(node, "self");
    if (!self || !has_one_result(node)) return std::nullopt;
    return Link{*place, &node, *self};
  }

  /// nn.MultiheadAttention: `view`, at `place`, makes [n, heads, T, width] of [n * heads, T, width], which is
  /// one of three parts of [3, T, n, heads * width].
  bool of_module(const Place& place, ValueId value) {
    made_.reshapes.push_back(place);
    if (search_.dims(value) != 3 || !search_.only_user(value)) return false;
    cut(value, 0);
    const auto turned = link(value);
    if (!turned || !exchanges(*turned->node, 0, 1, 3) || !search_.only_user(turned->self)) return false;
    cut(turned->self, 1);
    const auto view = link(turned->self);
    const auto whole = made_.heads * made_.width;
    if (!view || !is_reshape(*view->node) || search_.dims(view->self) != 3 ||
        search_.size(view->self, 2) != whole || !search_.only_user(view->self))
      return false;
    made_.reshapes.push_back(view->place);
    cut_last(view->self);
    const auto part = link(view->self);
    const bool picks = part && calls(*part->node, "select") && number_of(*part->node, "dim") == 0 &&
                       number_of(*part->node, "index") == picked_;
    if (!picks || (picked_ > 0 && part->self != stacked_)) return false;
    stacked_ = part->self;
    return ++picked_ > 1 || of_stack(part->self);
  }

  /// From [3, T, n, heads * width], which queries, keys and values are picked from.
  bool of_stack(ValueId value) {
    constexpr std::size_t kParts = 3;
    if (search_.users(value).size() != kParts || search_.is_returned(value)) return false;
    cut_last(value);
    auto next = link(value);
    if (next && copies(*next->node)) next = step_back(next->self);
    if (!next || !calls(*next->node, "squeeze")) return false;
    next = step_back(next->self);
    if (!next || !exchanges(*next->node, 0, 3, 5)) return false;
    next = step_back(next->self);
    if (!next || !calls(*next->node, "unsqueeze") || number_of(*next->node, "dim") != 0) return false;
    next = step_back(next->self);
    if (!next || !is_reshape(*next->node)) return false;
    made_.reshapes.push_back(next->place);
    return joint_projection(next->self);
  }

  std::optional<Link> step_back(ValueId value) {
    if (!search_.only_user(value)) return std::nullopt;
    cut_last(value);
    return link(value);
  }

  /// From the heads' results [n, heads, T, width] to the linear layer.
  bool forward(ValueId value) {
    bool turned = false;
    for (;;) {
      const bool flat = search_.dims(value) < 4;
      cut(value, flat ? search_.dims(value) - 1 : turned ? 2 : kHeads);
      const auto user = search_.only_user(value);
      if (!user) return false;
      const Node& node = search_.node_at(*user);
      if (flat && search_.is_linear(node) && linear_input(node) == value &&
          search_.inputs_of(node) == made_.heads * made_.width) {
        made_.output = *user;
        made_.name = name_of(node);
        return true;
      }
      if (!has_one_result(node) || tensor_of(node, "self") != value) return false;
      if (!flat && !turned && (exchanges(node, 1, 2) || permutes(node, {2, 0, 1, 3}))) {
        turned = true;
      } else if (!flat && !turned && is_reshape(node) && search_.same_shape(value, result_of(node))) {
        made_.reshapes.push_back(*user);  // which Hugging Face's transformers leave there
      } else if (turned && is_reshape(node)) {
        if (search_.dims(result_of(node)) > 3 ||
            search_.size(result_of(node), -1) != made_.heads * made_.width)
          return false;
        made_.reshapes.push_back(*user);
      } else if (!copies(node)) {
        return false;
      }
      value = result_of(node);
    }
  }

  /// The module around its linear layers.
  static std::string name_of(const Node& output) {
    const std::string name = NodeSearch::title(output);
    const auto dot = name.rfind('.');
    return dot == std::string::npos ? name : name.substr(0, dot);
  }

  /// One linear layer for all, or three different ones.
  bool all_three() const {
    if (made_.projections.size() == 1) return made_.projections[0].parts == 3;
    return made_.projections.size() == 3 &&
           std::ranges::all_of(made_.projections, [](const auto& one) { return one.parts == 1; });
  }

  const NodeSearch& search_;
  CutAttention made_;
  ValueId stacked_ = 0;      // of nn.MultiheadAttention: what queries, keys and values are picked from
  std::int64_t picked_ = 0;  // so many of them so far
};

}  // namespace

std::vector<CutAttention> find_attentions(const NodeSearch& search) {
  std::vector<CutAttention> found;
  for (const Place& place : search.places()) {
    if (auto attention = Tracing(search).from(place)) found.push_back(std::move(*attention));
  }
  return found;
}

}  // namespace dtrain::models::exported
