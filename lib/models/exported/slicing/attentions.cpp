#include "models/exported/slicing/attentions.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "models/exported/operators.hpp"
#include "models/exported/slicing/projections.hpp"

namespace dtrain::models::exported {
namespace {

constexpr std::size_t kHeads = 1;  // dim of [n, heads, T, width]

/// The way from one attention's core to its linear layers.
class Tracing {
 public:
  explicit Tracing(const NodeSearch& search) : search_(search), walk_(search, made_) {}

  /// From `softmax(q k^T) v` or the like at `place`.
  std::optional<CutAttention> from(const Place& place) {
    const Node& node = search_.node_at(place);
    const bool found = calls(node, "scaled_dot_product_attention") ? of_operator(place, node)
                       : calls(node, "matmul")                     ? of_products(place, node)
                                                                   : false;
    return found && walk_.shares_out() && Projections(search_, made_).reach(walk_.sources())
               ? std::optional(std::move(made_))
               : std::nullopt;
  }

 private:
  void cut(ValueId value, std::size_t dim) { made_.between.push_back({value, dim}); }
  /// Whether what all ranks have whole is the same for each head of what a node makes, or is given by head.
  bool takes_beside(const Place& place, ValueId value) {
    constexpr std::size_t kDims = 4;
    if (search_.dims(value) > kDims) return false;
    if (!search_.is_alike_along(value, kHeads, kDims)) {
      if (search_.size(value, static_cast<int>(kHeads) - static_cast<int>(kDims)) != made_.heads)
        return false;
      made_.by_head.push_back({place, value});
    }
    if (search_.may_be_trained(value)) made_.beside.push_back({place, value});
    return true;
  }

  bool of_operator(const Place& place, const Node& node) {
    const auto query = tensor_of(node, "query");
    if (!query || search_.dims(*query) != 4 || !search_.size(*query, kHeads)) return false;
    made_.heads = *search_.size(*query, kHeads);
    const auto mask = tensor_of(node, "attn_mask");
    if (mask && !takes_beside(place, *mask)) return false;
    made_.dropouts.push_back(place);
    for (const char* name : {"query", "key", "value"}) {
      const auto value = tensor_of(node, name);
      if (!value || search_.dims(*value) != 4 || !walk_.follow(*value, place)) return false;
    }
    return forward(result_of(node));
  }

  bool of_products(const Place& place, const Node& product) {
    const auto query = tensor_of(product, "self");
    const auto turned = tensor_of(product, "other");
    const bool have_heads = query && turned && search_.dims(*query) == 4 && search_.dims(*turned) == 4 &&
                            search_.size(*query, kHeads) &&
                            search_.size(*turned, kHeads) == search_.size(*query, kHeads);
    if (!have_heads) return false;
    made_.heads = *search_.size(*query, kHeads);
    return walk_.follow(*query, place) && walk_.follow(*turned, place) && scores(result_of(product));
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
        return weighed && tensor_of(node, "self") == value && values && search_.dims(*values) == 4 &&
               search_.size(*values, kHeads) == made_.heads && walk_.follow(*values, *user) &&
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
      } else if (calls_one(node, {"add", "sub", "mul", "div", "tanh", "masked_fill"})) {
        for (const char* other : {"other", "mask", "value"}) {
          const auto beside = tensor_of(node, other);
          if (beside && !takes_beside(*user, *beside)) return false;
        }
      } else if (!is_copy(node)) {
        return false;
      }
      value = result_of(node);
    }
  }

  /// From the heads' results [n, heads, T, width] to the linear layer.
  bool forward(ValueId value) {
    const auto width = search_.size(value, 3);
    if (!width) return false;
    const std::int64_t features = made_.heads * *width;
    bool turned = false;
    for (;;) {
      const bool flat = search_.dims(value) < 4;
      cut(value, flat ? search_.dims(value) - 1 : turned ? 2 : kHeads);
      const auto user = search_.only_user(value);
      if (!user) return false;
      const Node& node = search_.node_at(*user);
      if (flat && search_.is_linear(node) && linear_input(node) == value &&
          search_.inputs_of(node) == features) {
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
        if (search_.dims(result_of(node)) > 3 || search_.size(result_of(node), -1) != features) return false;
        made_.reshapes.push_back(*user);
      } else if (!is_copy(node)) {
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

  const NodeSearch& search_;
  CutAttention made_;
  HeadWalk walk_;
};

}  // namespace

std::vector<CutAttention> find_attentions(const NodeSearch& search) {
  std::vector<CutAttention> found;
  std::set<Place> taken;  // a linear layer is part of one only
  for (const Place& place : search.places()) {
    auto attention = Tracing(search).from(place);
    if (!attention) continue;
    std::set<Place> layers = {attention->output};
    for (const auto& projection : attention->projections) layers.insert(projection.place);
    const auto is_taken = [&](const Place& layer) { return taken.contains(layer); };
    if (std::ranges::any_of(layers, is_taken)) continue;
    taken.merge(layers);
    found.push_back(std::move(*attention));
  }
  return found;
}

}  // namespace dtrain::models::exported
