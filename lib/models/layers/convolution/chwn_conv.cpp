#include "models/layers/convolution/chwn_conv.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/sum.h>

#include <optional>
#include <utility>

#include "kernels/convolution/chwn_conv.hpp"
#include "kernels/convolution/transpose.hpp"
#include "models/compute/precision.hpp"
#include "models/layers/convolution/kept_convolution.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kFewestImages = 8;  // of a convolution with a stride: its vectors hold no neighbours

std::size_t extent_of(const at::Tensor& tensor, std::int64_t dim) {
  return static_cast<std::size_t>(tensor.size(dim));
}

template <class T>
void transpose_as(const at::Tensor& to, const at::Tensor& from, std::int64_t rows) {
  const auto columns = rows == 0 ? 0 : from.numel() / rows;
  kernels::transpose(to.data_ptr<T>(), from.const_data_ptr<T>(), static_cast<std::size_t>(rows),
                     static_cast<std::size_t>(columns));
}

/// `from`, a matrix of so many rows in memory, transposed into `to`.
void transpose(const at::Tensor& to, const at::Tensor& from, std::int64_t rows) {
  if (from.scalar_type() == at::kDouble) return transpose_as<double>(to, from, rows);
  transpose_as<float>(to, from, rows);
}

at::Tensor bias_gradient(const at::Tensor& output_gradient) {
  return output_gradient.permute({1, 2, 3, 0}).flatten(1).sum(1);
}

at::Tensor to_nchw(const at::Tensor& images) {
  if (images.is_contiguous()) return images;
  if (!is_chwn(images) || !is_full_on_cpu(images)) return images.contiguous();
  const at::Tensor result = at::empty(images.sizes(), images.options());
  transpose(result, images, images.numel() / images.size(0));
  return result;
}

struct AsNchw : torch::autograd::Function<AsNchw> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& images) {
    return to_nchw(images);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* /*context*/,
                                               const torch::autograd::tensor_list& gradients) {
    return {as_chwn(gradients[0])};
  }
};

/// The operations of one convolution between its two sides, on all threads.
class Sides {
 public:
  Sides(const at::Tensor& large, const at::Tensor& small, const at::Tensor& weight,
        const Conv2d::Geometry& geometry)
      : large_(large),
        small_(small),
        weight_(weight.detach()),
        size_{.images = extent_of(large, 0),
              .large_channels = extent_of(large, 1),
              .height = extent_of(large, 2),
              .width = extent_of(large, 3),
              .small_channels = extent_of(small, 1),
              .rows = extent_of(small, 2),
              .columns = extent_of(small, 3),
              .kernel = static_cast<std::size_t>(geometry.kernel),
              .stride = static_cast<std::size_t>(geometry.stride),
              .padding = static_cast<std::size_t>(geometry.padding)} {}

  void write_small(const std::optional<at::Tensor>& bias) const {
    over(size_.rows, [&](auto type, kernels::Span part) {
      using T = decltype(type);
      kernels::chwn_to_small(small_.data_ptr<T>(), large_.const_data_ptr<T>(), weight_.const_data_ptr<T>(),
                             strides_of(weight_), bias ? bias->const_data_ptr<T>() : nullptr, size_, part);
    });
  }
  void write_large(const std::optional<at::Tensor>& bias) const {
    over(size_.height, [&](auto type, kernels::Span part) {
      using T = decltype(type);
      kernels::chwn_to_large(large_.data_ptr<T>(), small_.const_data_ptr<T>(), weight_.const_data_ptr<T>(),
                             strides_of(weight_), bias ? bias->const_data_ptr<T>() : nullptr, size_, part);
    });
  }
  void write_weight_gradient(const at::Tensor& gradient) const {
    over(size_.large_channels, [&](auto type, kernels::Span part) {
      using T = decltype(type);
      kernels::chwn_weight_gradient(gradient.data_ptr<T>(), strides_of(gradient), small_.const_data_ptr<T>(),
                                    large_.const_data_ptr<T>(), size_, part);
    });
  }

 private:
  static kernels::WeightStrides strides_of(const at::Tensor& weight) {
    const auto step = [&](std::int64_t dim) { return static_cast<std::size_t>(weight.stride(dim)); };
    return {step(0), step(1), step(2), step(3)};
  }

  template <class Call>
  void over(std::size_t count, const Call& call) const {
    at::parallel_for(0, static_cast<std::int64_t>(count), 1, [&](std::int64_t begin, std::int64_t end) {
      const kernels::Span part{static_cast<std::size_t>(begin), static_cast<std::size_t>(end)};
      if (weight_.scalar_type() == at::kDouble) {
        call(double(), part);
      } else {
        call(float(), part);
      }
    });
  }

  at::Tensor large_;
  at::Tensor small_;
  at::Tensor weight_;
  kernels::ChwnConv size_;
};

/// A convolution, or with Transposed the transposed one.
template <bool Transposed>
class ChwnConv : public torch::autograd::Function<ChwnConv<Transposed>> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            c10::intrusive_ptr<KeptConvolution> kept) {
    const auto& g = kept->geometry;
    const at::Tensor input = as_chwn(given);
    const auto after = [&](std::int64_t from) {
      return Transposed ? g.extent_before(from) : g.extent_after(from);
    };
    const at::Tensor output = empty_chwn(
        {input.size(0), weight.size(Transposed ? 1 : 0), after(input.size(2)), after(input.size(3))},
        input.options());
    if constexpr (Transposed) {
      Sides(output, input, weight, g).write_large(bias);
    } else {
      Sides(input, output, weight, g).write_small(bias);
    }
    context->save_for_backward({input});
    KeptConvolution::keep(context, kept);
    return output;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto& kept = KeptConvolution::of(context);
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = as_chwn(gradients[0]);
    const at::Tensor& weight = kept.weight->value;
    const at::Tensor dweight = kept.weight->take_gradient_memory(weight.suggest_memory_format());
    at::Tensor dx;
    if (context->needs_input_grad(0)) dx = empty_chwn(x.sizes(), x.options());
    if constexpr (Transposed) {
      Sides(dy, x, weight, kept.geometry).write_weight_gradient(dweight);
      if (dx.defined()) Sides(dy, dx, weight, kept.geometry).write_small(std::nullopt);
    } else {
      Sides(x, dy, weight, kept.geometry).write_weight_gradient(dweight);
      if (dx.defined()) Sides(dx, dy, weight, kept.geometry).write_large(std::nullopt);
    }
    at::Tensor dbias;
    if (kept.bias != nullptr) dbias = bias_gradient(dy);
    return {dx, dweight, dbias, at::Tensor()};
  }
};

/// The calls of ChwnConv.
template <bool Transposed>
class DirectChwnConv final : public DirectPass {
 public:
  DirectChwnConv(Parameter& weight, Parameter* bias, const Conv2d::Geometry& geometry)
      : weight_(weight), bias_(bias), geometry_(geometry) {}

  bool fits(std::int64_t samples, std::size_t /*micro_batches*/) const override {
    return fits_chwn_conv(samples, geometry_);
  }

  at::Tensor forward(const at::Tensor& input) override {
    input_ = as_chwn(input);
    const auto after = [&](std::int64_t from) {
      return Transposed ? geometry_.extent_before(from) : geometry_.extent_after(from);
    };
    const Shape shape{input.size(0), geometry_.out_channels, after(input.size(2)), after(input.size(3))};
    const auto bias = bias_ != nullptr ? std::optional(bias_->value) : std::nullopt;
    kept_chwn(output_, shape, input.options());
    const Sides sides = between(input_, output_);
    Transposed ? sides.write_large(bias) : sides.write_small(bias);
    return output_;
  }

  at::Tensor backward(const at::Tensor& given, bool wanted) override {
    const at::Tensor gradient = as_chwn(given);
    const at::Tensor of_weight = weight_.take_gradient_memory(weight_.value.suggest_memory_format());
    between(input_, gradient).write_weight_gradient(of_weight);
    leave_gradient(weight_, of_weight);
    if (bias_ != nullptr) leave_gradient(*bias_, bias_gradient(gradient));
    if (!wanted) return {};
    kept_chwn(input_gradient_, input_.sizes(), input_.options());
    const Sides sides = between(input_gradient_, gradient);
    Transposed ? sides.write_small(std::nullopt) : sides.write_large(std::nullopt);
    return input_gradient_;
  }

 private:
  Sides between(const at::Tensor& before, const at::Tensor& after) const {
    return Transposed ? Sides(after, before, weight_.value, geometry_)
                      : Sides(before, after, weight_.value, geometry_);
  }

  Parameter& weight_;
  Parameter* bias_;
  Conv2d::Geometry geometry_;
  at::Tensor input_;
  at::Tensor output_;
  at::Tensor input_gradient_;
};

}  // namespace

bool is_chwn(const at::Tensor& images) {
  return images.dim() == 4 && images.permute({1, 2, 3, 0}).is_contiguous();
}

at::Tensor empty_chwn(at::IntArrayRef shape, const at::TensorOptions& options) {
  const auto n = shape[0];
  return at::empty_strided(shape, {1, shape[2] * shape[3] * n, shape[3] * n, n}, options);
}

at::Tensor& kept_chwn(at::Tensor& kept, at::IntArrayRef shape, const at::TensorOptions& options) {
  if (!serves(kept, shape, options)) kept = empty_chwn(shape, options);
  return kept;
}

at::Tensor as_chwn(const at::Tensor& images) {
  if (is_chwn(images)) return images;
  const at::Tensor result = empty_chwn(images.sizes(), images.options());
  if (!is_full_on_cpu(images)) {
    result.copy_(images);
    return result;
  }
  transpose(result, images.contiguous(), images.size(0));
  return result;
}

at::Tensor as_nchw(const at::Tensor& images) {
  return images.is_contiguous() ? images : AsNchw::apply(images);
}

bool fits_chwn_conv(const at::Tensor& input, const at::Tensor& weight, const Conv2d::Geometry& geometry) {
  return own_products_take(input, weight) && fits_chwn_conv(input.size(0), geometry);
}

bool fits_chwn_conv(std::int64_t images, const Conv2d::Geometry& geometry) {
  return geometry.stride == 1 || images >= kFewestImages;
}

at::Tensor chwn_conv(const at::Tensor& input, Parameter& weight, Parameter* bias,
                     const Conv2d::Geometry& geometry) {
  return ChwnConv<false>::apply(input, weight.value,
                                bias != nullptr ? std::optional(bias->value) : std::nullopt,
                                c10::make_intrusive<KeptConvolution>(&weight, bias, geometry));
}

std::unique_ptr<DirectPass> direct_chwn_conv(Parameter& weight, Parameter* bias,
                                             const Conv2d::Geometry& geometry) {
  return std::make_unique<DirectChwnConv<false>>(weight, bias, geometry);
}

std::unique_ptr<DirectPass> direct_chwn_conv_transpose(Parameter& weight, Parameter& bias,
                                                       const Conv2d::Geometry& geometry) {
  return std::make_unique<DirectChwnConv<true>>(weight, &bias, geometry);
}

at::Tensor chwn_conv_transpose(const at::Tensor& input, Parameter& weight, Parameter& bias,
                               const Conv2d::Geometry& geometry) {
  return ChwnConv<true>::apply(input, weight.value, std::optional(bias.value),
                               c10::make_intrusive<KeptConvolution>(&weight, &bias, geometry));
}

}  // namespace dtrain::models
