#include "models/layers/convolution/max_pool2d.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/convolution/max_pool.hpp"
#include "models/compute/precision.hpp"
#include "models/layers/convolution/chwn_conv.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

/// What is pooled: planes of all channels and images, or with Chwn of all channels, the image innermost.
template <bool Chwn>
kernels::PoolSize pool_size(at::IntArrayRef shape) {
  return {static_cast<std::size_t>(Chwn ? shape[1] : shape[0] * shape[1]), static_cast<std::size_t>(shape[2]),
          static_cast<std::size_t>(shape[3])};
}

template <bool Chwn>
at::Tensor empty_images(at::IntArrayRef shape, const at::TensorOptions& options) {
  return Chwn ? empty_chwn(shape, options) : at::empty(shape, options);
}

template <bool Chwn, class T>
at::Tensor pool(const at::Tensor& input, const at::Tensor& which) {
  at::Tensor output = empty_images<Chwn>(which.sizes(), input.options());
  const auto size = pool_size<Chwn>(input.sizes());
  T* const out = output.data_ptr<T>();
  auto* const places = which.data_ptr<std::uint8_t>();
  if constexpr (Chwn) {
    kernels::max_pool_2x2_chwn(out, places, input.const_data_ptr<T>(), size,
                               static_cast<std::size_t>(input.size(0)));
  } else {
    kernels::max_pool_2x2(out, places, input.const_data_ptr<T>(), size);
  }
  return output;
}

template <bool Chwn, class T>
at::Tensor unpool(const at::Tensor& gradient, const at::Tensor& which, at::IntArrayRef shape) {
  at::Tensor result = empty_images<Chwn>(shape, gradient.options());
  const auto size = pool_size<Chwn>(shape);
  T* const out = result.data_ptr<T>();
  const auto* const places = which.const_data_ptr<std::uint8_t>();
  if constexpr (Chwn) {
    kernels::max_pool_2x2_chwn_backward(out, gradient.const_data_ptr<T>(), places, size,
                                        static_cast<std::size_t>(shape[0]));
  } else {
    kernels::max_pool_2x2_backward(out, gradient.const_data_ptr<T>(), places, size);
  }
  return result;
}

template <bool Chwn>
class MaxPool2x2 : public torch::autograd::Function<MaxPool2x2<Chwn>> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input) {
    const at::Tensor which =
        empty_images<Chwn>({input.size(0), input.size(1), input.size(2) / 2, input.size(3) / 2}, at::kByte);
    context->saved_data["which"] = which;
    context->saved_data["shape"] = input.sizes().vec();
    return input.scalar_type() == at::kDouble ? pool<Chwn, double>(input, which)
                                              : pool<Chwn, float>(input, which);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const at::Tensor gradient = Chwn ? as_chwn(gradients[0]) : gradients[0].contiguous();
    const at::Tensor which = context->saved_data["which"].toTensor();
    const auto shape = context->saved_data["shape"].toIntVector();
    return {gradient.scalar_type() == at::kDouble ? unpool<Chwn, double>(gradient, which, shape)
                                                  : unpool<Chwn, float>(gradient, which, shape)};
  }
};

}  // namespace

Tensors MaxPool2d::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  output_shapes({input.sizes().vec()});
  if (halves() && own_kernels_take(input)) {
    if (input.is_contiguous()) return {MaxPool2x2<false>::apply(input)};
    if (is_chwn(input)) return {MaxPool2x2<true>::apply(input)};
  }
  return {at::max_pool2d(input, extent_, stride_, padding_)};
}

std::vector<Shape> MaxPool2d::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  const std::int64_t smallest = extent_ - 2 * padding_;
  if (shape.size() != 4 || shape[2] < smallest || shape[3] < smallest) {
    throw input_error(name(), fmt::format("[N, C, H, W] with H and W at least {}", smallest), shape);
  }
  return {{shape[0], shape[1], (shape[2] - smallest) / stride_ + 1, (shape[3] - smallest) / stride_ + 1}};
}

Cost MaxPool2d::cost(const std::vector<Shape>& inputs) const {
  const double elements = element_count(inputs.at(0));
  const double outputs = element_count(output_shapes(inputs)[0]);
  const bool own_kernel = halves() && format_ == at::MemoryFormat::Contiguous;
  const double index_bytes = own_kernel ? 1.0 : 8.0;  // where each maximum was
  const double kept = outputs * (4.0 + index_bytes);
  return {.flops = elements, .parameter_bytes = 0.0, .activation_bytes = kept};
}

}  // namespace dtrain::models
