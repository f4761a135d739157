#include "models/layers/fused/fused_batch_norm.hpp"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/precision.hpp"

namespace dtrain::models {
namespace {

using kernels::FusedKernels;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// What forward leaves for each channel, in two tensors: double [2, C], float [2, C].
struct OfChannels {
  at::Tensor moments;  // mean and 1 / deviation
  at::Tensor scaling;  // scale and shift
};

OfChannels of_channels(const at::Tensor& x) {
  const auto options = x.options().requires_grad(false).memory_format(at::MemoryFormat::Contiguous);
  return {at::empty({2, x.size(1)}, options.dtype(at::kDouble)),
          at::empty({2, x.size(1)}, options.dtype(at::kFloat))};
}

at::Tensor partial_sums(const OfChannels& of) {
  return at::empty({static_cast<std::int64_t>(FusedKernels::kStatisticParts), 2, of.moments.size(1)},
                   of.moments.options());
}

at::Tensor images_like(const at::Tensor& x) {
  return at::empty(x.sizes(), x.options().requires_grad(false).memory_format(kChannelsLast));
}

kernels::ChannelNorm norm_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const OfChannels& of, const at::Tensor& partial, double epsilon, bool relu) {
  const auto channels = static_cast<std::size_t>(x.size(1));
  return {.rows = static_cast<std::size_t>(x.numel()) / channels,
          .channels = channels,
          .epsilon = epsilon,
          .relu = relu,
          .type = *element_of(x.scalar_type()),
          .weight = weight.const_data_ptr<float>(),
          .bias = bias.const_data_ptr<float>(),
          .mean = of.moments.data_ptr<double>(),
          .inverse_deviation = of.moments.data_ptr<double>() + channels,
          .scale = of.scaling.data_ptr<float>(),
          .shift = of.scaling.data_ptr<float>() + channels,
          .partial = partial.data_ptr<double>()};
}

class FusedBatchNorm : public torch::autograd::Function<FusedBatchNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual, double epsilon,
                            bool relu, const kernels::StepMoments& step) {
    const OfChannels of = of_channels(x);
    const at::Tensor y = images_like(x);
    fused_kernels_for(x)->batch_norm(
        y.data_ptr(), x.const_data_ptr(), residual ? residual->const_data_ptr() : nullptr,
        norm_of(x, weight, bias, of, partial_sums(of), epsilon, relu), step, computing_stream(x.device()));
    // Without a residual the ReLU's zeros follow from the input, which is kept anyway.
    context->save_for_backward(
        {x, weight, bias, of.moments, of.scaling, residual && relu ? y : at::Tensor()});
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["relu"] = relu;
    context->saved_data["residual"] = residual.has_value();
    return y;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &output = saved[5];
    const OfChannels of{saved[3], saved[4]};
    const at::Tensor of_output = gradients[0].contiguous(kChannelsLast);
    const at::Tensor of_x = images_like(x);
    const at::Tensor of_residual = context->saved_data["residual"].toBool() ? images_like(x) : at::Tensor();
    const at::Tensor of_weight = at::empty({x.size(1)}, of.scaling.options());
    const at::Tensor of_bias = at::empty({x.size(1)}, of.scaling.options());
    const at::Tensor factors = at::empty({3, x.size(1)}, of.scaling.options());
    fused_kernels_for(x)->batch_norm_gradient(
        {.of_x = of_x.data_ptr(),
         .of_residual = of_residual.defined() ? of_residual.data_ptr() : nullptr,
         .of_weight = of_weight.data_ptr<float>(),
         .of_bias = of_bias.data_ptr<float>(),
         .factors = factors.data_ptr<float>(),
         .of_output = of_output.const_data_ptr(),
         .x = x.const_data_ptr(),
         .output = output.defined() ? output.const_data_ptr() : nullptr},
        norm_of(x, weight, bias, of, partial_sums(of), context->saved_data["epsilon"].toDouble(),
                context->saved_data["relu"].toBool()),
        computing_stream(x.device()));
    return {of_x, of_weight, of_bias, of_residual, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool takes_fused_batch_norm(const at::Tensor& x, const Parameter& weight) {
  return fused_kernels_are_on() && !is_full_on_cpu(x) && x.numel() > 0 &&
         element_of(x.scalar_type()).has_value() && weight.value.scalar_type() == at::kFloat &&
         fused_kernels_for(x) != nullptr;
}

at::Tensor fused_batch_norm(const at::Tensor& x, const at::Tensor& residual, kernels::Then then,
                            const Parameter& weight, const Parameter& bias, Buffer& mean, Buffer& variance,
                            double epsilon, const Context& context) {
  kernels::StepMoments step;
  if (context.pass == Pass::first && x.numel() / x.size(1) >= 2) {
    step = {.mean = mean.step_row(context.micro_batch).data_ptr<double>(),
            .variance = variance.step_row(context.micro_batch).data_ptr<double>(),
            .samples = static_cast<double>(x.size(0))};
    mean.step_weight += step.samples;
    variance.step_weight += step.samples;
  }
  // The kernels read floats side by side; a user's network may give columns of a table, or half precision.
  return FusedBatchNorm::apply(x, weight.value.contiguous(), bias.value.to(at::kFloat).contiguous(),
                               residual.defined() ? std::optional(residual) : std::nullopt, epsilon,
                               then == kernels::Then::relu, step);
}

}  // namespace dtrain::models
