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

/// Whether a node exchanges two dims of a tensor of four.
bool exchanges(const Node& node, std::int64_t a, std::int64_t b) {
  if (calls(node, "transpose")) {
    const auto from = number_of(node, "dim0");
    const auto to = number_of(node, "dim1");
    if (!from || !to) return false;
    const auto one = (*from + 4) % 4;
    const auto other = (*to + 4) % 4;
    return (one == a && other == b) || (one == b && other == a);
  }
  if (!calls(node, "permute")) return false;
  std::array<std::int64_t, 4> order = {0, 1, 2, 3};
  std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
  const auto* dims = node.find("dims");
  return dims != nullptr && std::ranges::equal(dims->sizes, order, [](const Size& given, std::int64_t dim) {
           return !given.value && given.number == dim;
         });
}

bool is_reshape(const Node& node) {
  return calls_one(node, {"view", "reshape", "unflatten", "flatten", "_unsafe_view"}) && has_one_result(node);
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
  void cut(ValueId value, std::size_t dim, std::int64_t of_head) {
    made_.between.push_back({value, dim, of_head});
  }

  /// Whether what all ranks have whole is the same for each head.
  bool is_alike(ValueId value) const {
    const auto dims = search_.dims(value);
    return dims < 3 || (dims <= 4 && search_.size(value, -3) == 1);
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
    cut(*turned, kHeads, 1);
    const auto key = tensor_of(search_.node_at(*turning), "self");
    if (!key || !back(*query) || !back(*key)) return false;
    return scores(result_of(product));
  }

  /// From the scores [n, heads, T, S] through softmax to the product with the values.
  bool scores(ValueId value) {
    for (bool weighed = false;;) {
      cut(value, kHeads, 1);
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
    return !other || search_.dims(*other) == 0;
  }

  /// From queries, keys or values [n, heads, T, width] to the linear layer.
  bool back(ValueId value) {
    const bool heads = search_.dims(value) == 4 && search_.size(value, kHeads) == made_.heads &&
                       search_.size(value, 3) == made_.width;
    if (!heads) return false;
    bool turned = false;
    for (;;) {
      const bool flat = search_.dims(value) == 3;
      cut(value, flat || turned ? 2 : kHeads, flat ? made_.width : 1);
      const auto place = search_.producer(value);
      if (!place || !search_.only_user(value)) return false;
      const Node& node = search_.node_at(*place);
      if (flat && search_.is_linear(node)) {
        if (search_.extent(node, 0) != made_.heads * made_.width) return false;
        made_.projections.push_back({*place, 1});
        return true;
      }
      if (flat && calls_one(node, {"split", "chunk", "split_with_sizes"})) return split(*place, node);
      const auto self = tensor_of(node, "self");
      if (!self) return false;
      if (!flat && !turned && exchanges(node, 1, 2)) {
        turned = true;
      } else if (turned && !flat && is_reshape(node)) {
        if (search_.dims(*self) != 3 || search_.size(*self, 2) != made_.heads * made_.width) return false;
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
    const auto source = search_.producer(*joint);
    if (!source || !search_.only_user(*joint) || !search_.is_linear(search_.node_at(*source)) ||
        search_.extent(search_.node_at(*source), 0) != kParts * made_.heads * made_.width)
      return false;
    cut(*joint, 2, kParts * made_.width);
    made_.splits.push_back(place);
    made_.projections.push_back({*source, kParts});
    return true;
  }

  /// From the heads' results [n, heads, T, width] to the linear layer.
  bool forward(ValueId value) {
    bool turned = false;
    for (;;) {
      const bool flat = search_.dims(value) == 3;
      cut(value, flat || turned ? 2 : kHeads, flat ? made_.width : 1);
      const auto user = search_.only_user(value);
      if (!user) return false;
      const Node& node = search_.node_at(*user);
      if (flat && search_.is_linear(node) && tensor_of(node, "input") == value &&
          search_.extent(node, 1) == made_.heads * made_.width) {
        made_.output = *user;
        made_.name = name_of(node);
        return true;
      }
      if (!has_one_result(node) || tensor_of(node, "self") != value) return false;
      if (!flat && !turned && exchanges(node, 1, 2)) {
        turned = true;
      } else if (turned && !flat && is_reshape(node)) {
        if (search_.dims(result_of(node)) != 3 ||
            search_.size(result_of(node), 2) != made_.heads * made_.width)
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
