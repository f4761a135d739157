#include "models/exported/costs.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "models/exported/operators.hpp"
#include "models/layers/dropout.hpp"
#include "models/shape.hpp"

namespace dtrain::models::exported {
namespace {

class Counting {
 public:
  Counting(const Node& node, const std::function<Shape(ValueId)>& shape_of)
      : node_(node), shape_of_(shape_of) {}

  double flops() const {
    const double results = elements_made();
    if (is_one_of({"linear"})) return 2 * results * extent("weight", -1) + results;
    if (is_one_of({"addmm", "addbmm", "baddbmm"}))
      return 2 * results * extent("mat1", -1, "batch1") + results;
    if (is_one_of({"mm", "bmm", "matmul", "mv"})) return 2 * results * extent("self", -1);
    if (is_one_of({"conv1d", "conv2d", "conv3d", "convolution"})) {
      const Shape weight = shape("weight");  // [out, in / groups, k...]
      const double outputs = weight.empty() ? 1.0 : static_cast<double>(weight[0]);
      return 2 * results * element_count(weight) / std::max(outputs, 1.0) + results;
    }
    if (is_one_of({"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})) {
      const Shape weight = shape("weight");  // [in, out / groups, k...]: each input reaches out / groups k
      const double inputs = weight.empty() ? 1.0 : static_cast<double>(weight[0]);
      return 2 * element_count(shape("input")) * element_count(weight) / std::max(inputs, 1.0) + results;
    }
    if (is_one_of({"scaled_dot_product_attention"}))  // both products
      return 4 * element_count(shape("query")) * extent("key", -2);
    if (is_one_of({"lstm", "gru", "rnn_tanh", "rnn_relu"})) return recurrent();
    if (is_view()) return 0;
    return results;
  }

  double elements_kept_inside() const {
    const double masks = masks_kept_by_dropout();
    if (drops_by("p") && is_one_of({"dropout", "dropout_"})) return masks * elements_made();
    if (!drops_by("dropout_p") || !is_one_of({"scaled_dot_product_attention"})) return 0;
    const double queries = element_count(shape("query"));
    return queries + (2 + masks) * queries / std::max(extent("query", -1), 1.0) * extent("key", -2);
  }

 private:
  bool is_one_of(std::initializer_list<std::string_view> names) const {
    return std::ranges::any_of(names, [this](std::string_view name) { return calls(node_, name); });
  }

  bool drops_by(std::string_view argument) const {
    const auto* probability = node_.find(argument);
    return probability != nullptr && !probability->reals.empty() && probability->reals[0] != 0;
  }

  bool is_view() const {
    return is_one_of({"view", "reshape", "transpose", "permute", "expand", "slice", "select", "chunk",
                      "split", "unsqueeze", "squeeze", "flatten", "detach", "t", "narrow", "unbind", "alias",
                      "contiguous"});
  }

  Shape shape(std::string_view argument) const {
    const auto* given = node_.find(argument);
    if (given == nullptr || given->values.empty() || !given->values[0]) return {};
    return shape_of_(*given->values[0]);
  }

  double extent(std::string_view argument, int dim, std::string_view otherwise = {}) const {
    Shape found = shape(argument);
    if (found.empty() && !otherwise.empty()) found = shape(otherwise);
    const auto place = static_cast<std::int64_t>(found.size()) + dim;
    return place < 0 ? 1.0 : static_cast<double>(found[static_cast<std::size_t>(place)]);
  }

  double elements_made() const {
    double count = 0;
    for (const auto& output : node_.outputs) {
      if (output.kind == Output::Kind::number) continue;
      for (const ValueId value : output.values) count += element_count(shape_of_(value));
    }
    return count;
  }

  /// Each step of each sample multiplies all weights once.
  double recurrent() const {
    const Shape input = shape("input");  // [T, N, F] or [N, T, F]
    if (input.size() < 2) return elements_made();
    double weights = 0;
    if (const auto* given = node_.find("params")) {
      for (const auto& value : given->values) {
        const Shape one = value ? shape_of_(*value) : Shape();
        if (one.size() == 2) weights += element_count(one);
      }
    }
    return 2 * static_cast<double>(input[0]) * static_cast<double>(input[1]) * weights + elements_made();
  }

  const Node& node_;
  const std::function<Shape(ValueId)>& shape_of_;
};

}  // namespace

double flops_of(const Node& node, const std::function<Shape(ValueId)>& shape_of) {
  return Counting(node, shape_of).flops();
}

double elements_kept_inside(const Node& node, const std::function<Shape(ValueId)>& shape_of) {
  return Counting(node, shape_of).elements_kept_inside();
}

}  // namespace dtrain::models::exported
