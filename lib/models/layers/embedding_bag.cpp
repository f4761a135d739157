#include "models/layers/embedding_bag.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels/bag.hpp"
#include "models/compute/beside.hpp"
#include "models/compute/gradient_place.hpp"
#include "models/layers/vocabulary.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

kernels::Bags bags_of(const at::Tensor& ids) {
  return {ids.const_data_ptr<std::int32_t>(), static_cast<std::size_t>(ids.size(0)),
          static_cast<std::size_t>(ids.size(1)), static_cast<std::size_t>(ids.stride(0))};
}

template <class T>
at::Tensor scales_of(const at::Tensor& ids, const at::Tensor& weight, const std::string& name) {
  at::Tensor scales = at::empty({ids.size(0)}, weight.options().requires_grad(false));
  if (!kernels::bag_scales(scales.data_ptr<T>(), bags_of(ids), weight.size(0))) {
    throw data_error(fmt::format("a token's id is outside the vocabulary of {}", weight.size(0)),
                     fmt::format("layer {}", name), "stage the dataset again");
  }
  return scales;
}

/// By LibTorch's operators, in a device's memory or where the own kernels are off; `ids` lie on the CPU.
at::Tensor library_means(const at::Tensor& ids, const at::Tensor& weight, const std::string& name) {
  constexpr std::int64_t kMean = 1;
  constexpr std::int64_t kPadding = 0;
  require_known(ids, weight.size(0), fmt::format("layer {}", name));
  const auto device = at::TensorOptions().device(weight.device()).dtype(ids.scalar_type());
  const at::Tensor starts = at::arange(0, ids.numel(), std::max<std::int64_t>(ids.size(1), 1), device);
  return std::get<0>(at::embedding_bag(weight, beside(ids.view({-1}), weight), starts, false, kMean, false,
                                       {}, false, kPadding));
}

class BagMeans : public torch::autograd::Function<BagMeans> {
 public:
  /// `rows`: where the gradient goes by rows; null: into .grad, dense.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& ids, const at::Tensor& scales, RowGradients* rows) {
    context->save_for_backward({weight, ids, scales});
    // The collector that owns the list outlives the graph of each step.
    context->saved_data["rows"] = reinterpret_cast<std::int64_t>(rows);
    at::Tensor means = at::empty({ids.size(0), weight.size(1)}, weight.options());
    const auto columns = static_cast<std::size_t>(weight.size(1));
    if (weight.scalar_type() == at::kDouble) {
      kernels::bag_means(means.data_ptr<double>(), weight.const_data_ptr<double>(),
                         scales.const_data_ptr<double>(), bags_of(ids), columns);
    } else {
      kernels::bag_means(means.data_ptr<float>(), weight.const_data_ptr<float>(),
                         scales.const_data_ptr<float>(), bags_of(ids), columns);
    }
    return means;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& ids = saved[1];
    const at::Tensor& scales = saved[2];
    const at::Tensor gradient = gradients[0].contiguous();
    auto* rows = reinterpret_cast<RowGradients*>(context->saved_data["rows"].toInt());
    if (rows != nullptr) {
      rows->push_back({ids, scales, gradient});
      return {at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    }
    at::Tensor dense = at::zeros_like(saved[0]);
    const auto columns = static_cast<std::size_t>(dense.size(1));
    if (dense.scalar_type() == at::kDouble) {
      kernels::bag_means_backward(dense.data_ptr<double>(), gradient.const_data_ptr<double>(),
                                  scales.const_data_ptr<double>(), bags_of(ids), columns);
    } else {
      kernels::bag_means_backward(dense.data_ptr<float>(), gradient.const_data_ptr<float>(),
                                  scales.const_data_ptr<float>(), bags_of(ids), columns);
    }
    return {dense, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

EmbeddingBag::EmbeddingBag(const std::string& name, std::int64_t rows, std::int64_t columns,
                           std::int64_t longest)
    : Layer(name), rows_(rows), columns_(columns), longest_(longest) {
  parameters_.push_back({.name = name + ".weight",
                         .value = at::empty({rows, columns}).requires_grad_(),
                         .init = {.kind = Initialisation::Kind::normal, .scale = 1.0, .zero_rows = 1},
                         .slicing = Slicing::vocabulary,
                         .by_rows = true});
}

at::Tensor EmbeddingBag::ids_read(const at::Tensor& input) const {
  return input.narrow(1, 0, std::min(input.size(1), longest_)).contiguous();
}

Tensors EmbeddingBag::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  if (input.dim() != 2 || input.scalar_type() != at::kInt) {
    throw input_error(name(), "ids [n, T]", input.sizes());
  }
  const at::Tensor ids = ids_read(input);
  const Parameter& weight = parameters_[0];
  return {bag_means(ids, weight.value, weight.place != nullptr ? weight.place->rows() : nullptr, name())};
}

at::Tensor bag_means(const at::Tensor& ids, const at::Tensor& weight, RowGradients* rows,
                     const std::string& name) {
  if (!weight.is_cpu() || !own_kernels_are_on()) return library_means(ids, weight, name);
  const at::Tensor scales = weight.scalar_type() == at::kDouble ? scales_of<double>(ids, weight, name)
                                                                : scales_of<float>(ids, weight, name);
  // The kernels read rows side by side; a user's network may give the table turned.
  return BagMeans::apply(weight.contiguous(), ids, scales, rows);
}

std::vector<Shape> EmbeddingBag::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  if (shape.size() != 2) throw input_error(name(), "ids [n, T]", shape);
  return {{shape[0], columns_}};
}

Cost EmbeddingBag::cost(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  const auto tokens = static_cast<double>(shape.at(0) * std::min(shape.at(1), longest_));
  const auto bytes = static_cast<double>(parameters_[0].value.element_size());
  return {.flops = tokens * static_cast<double>(columns_),
          .parameter_bytes = static_cast<double>(rows_ * columns_) * bytes,
          .activation_bytes = static_cast<double>(shape.at(0) * columns_) * bytes,
          .gradient_bytes = static_cast<double>(rows_ * columns_) * bytes};  // unless it comes by rows
}

}  // namespace dtrain::models
