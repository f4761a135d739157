#include "models/layers/batch_norm.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <optional>

#include "core/error.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/precision.hpp"
#include "models/layers/fused/fused_batch_norm.hpp"
#include "models/slicing/slices.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kGrain = 1 << 15;    // elements that are worth a thread
constexpr std::int64_t kChannelGrain = 64;  // a whole number of tiles of the kernels

/// What normalises each channel: the micro-batch's statistics or the running ones. double [C] each.
struct Statistics {
  at::Tensor mean;
  at::Tensor variance;
};

/// Factors of y = x scale + shift, in the parameters' type.
struct Scaling {
  at::Tensor scale;
  at::Tensor shift;
  at::Tensor inverse_deviation;  // double
};

kernels::ChannelRows rows_of(const at::Tensor& images) {
  const auto channels = static_cast<std::size_t>(images.size(1));
  return {channels == 0 ? 0 : static_cast<std::size_t>(images.numel()) / channels, channels};
}

at::Tensor doubles(std::size_t channels) {
  return at::empty({static_cast<std::int64_t>(channels)}, at::kDouble);
}

/// The part of `size` that a thread has, and a call with the offset of its first element.
template <class Call>
void over_rows(const kernels::ChannelRows& size, const Call& call) {
  const auto channels = static_cast<std::int64_t>(size.channels);
  const auto grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, channels));
  at::parallel_for(0, static_cast<std::int64_t>(size.rows), grain, [&](std::int64_t begin, std::int64_t end) {
    call(begin * channels, kernels::ChannelRows{static_cast<std::size_t>(end - begin), size.channels});
  });
}

template <class Call>
void over_channels(const kernels::ChannelRows& size, const Call& call) {
  at::parallel_for(
      0, static_cast<std::int64_t>(size.channels), kChannelGrain, [&](std::int64_t begin, std::int64_t end) {
        call(kernels::ChannelRange{static_cast<std::size_t>(begin), static_cast<std::size_t>(end)});
      });
}

Statistics moments(const at::Tensor& x) {
  const auto size = rows_of(x);
  Statistics found{doubles(size.channels), doubles(size.channels)};
  auto* mean = found.mean.data_ptr<double>();
  auto* variance = found.variance.data_ptr<double>();
  with_stored_type(x, [&](auto type) {
    over_channels(size, [&](const kernels::ChannelRange& range) {
      kernels::channel_moments<decltype(type)>(mean, variance, stored<decltype(type)>(x), size, range);
    });
  });
  return found;
}

Scaling scaling_of(const Statistics& statistics, double epsilon, const at::Tensor& weight,
                   const at::Tensor& bias) {
  Scaling made;
  made.inverse_deviation = (statistics.variance + epsilon).rsqrt();
  const at::Tensor scale = weight.to(at::kDouble) * made.inverse_deviation;
  made.shift = (bias.to(at::kDouble) - statistics.mean * scale).to(weight.scalar_type());
  made.scale = scale.to(weight.scalar_type());
  return made;
}

template <class S>
at::Tensor scaled(const at::Tensor& x, const at::Tensor& residual, const Scaling& by, kernels::Then then) {
  using T = kernels::Computed<S>;
  at::Tensor y = at::empty(x.sizes(), x.options().memory_format(kChannelsLast));
  over_rows(rows_of(x), [&](std::int64_t offset, const kernels::ChannelRows& part) {
    kernels::scale_channels<S>({.y = stored<S>(y, offset),
                                .x = stored<const S>(x, offset),
                                .residual = stored<const S>(residual, offset),
                                .scale = stored<const T>(by.scale),
                                .shift = stored<const T>(by.shift),
                                .then = then},
                               part);
  });
  return y;
}

/// What backward needs besides the saved tensors.
struct Gradients {
  at::Tensor input, weight, bias, residual;
};

template <class S>
Gradients gradients_of(const kernels::MaskedGradient<S>& g, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& mean, const at::Tensor& inverse_deviation, Mode mode,
                       bool has_residual) {
  using T = kernels::Computed<S>;
  const auto size = rows_of(x);
  const at::Tensor sum = doubles(size.channels);
  const at::Tensor product_sum = doubles(size.channels);
  const at::Tensor centre = mean.to(weight.scalar_type());
  over_channels(size, [&](const kernels::ChannelRange& range) {
    kernels::channel_gradient_sums(sum.data_ptr<double>(), product_sum.data_ptr<double>(), g,
                                   stored<const T>(centre), size, range);
  });
  Gradients found;
  found.weight = (product_sum * inverse_deviation).to(weight.scalar_type());
  found.bias = sum.to(weight.scalar_type());

  // dx = a g + b x + c; with running statistics, which do not depend on x, only a g.
  const at::Tensor a = weight.to(at::kDouble) * inverse_deviation;
  at::Tensor b = at::zeros_like(a);
  at::Tensor c = at::zeros_like(a);
  if (mode == Mode::training && size.rows > 0) {
    const auto rows = static_cast<double>(size.rows);
    b = -a * inverse_deviation.square() * product_sum / rows;
    c = -a * sum / rows - b * mean;
  }
  const auto type = weight.scalar_type();
  const at::Tensor factors[3] = {a.to(type), b.to(type), c.to(type)};
  found.input = at::empty(x.sizes(), x.options().memory_format(kChannelsLast));
  if (has_residual) found.residual = at::empty(x.sizes(), x.options().memory_format(kChannelsLast));
  over_rows(size, [&](std::int64_t offset, const kernels::ChannelRows& part) {
    auto from = g;
    from.gradient += offset;
    from.x += offset;
    if (from.output != nullptr) from.output += offset;
    kernels::channel_gradient<S>(stored<S>(found.input, offset), stored<S>(found.residual, offset), from,
                                 stored<const T>(factors[0]), stored<const T>(factors[1]),
                                 stored<const T>(factors[2]), part);
  });
  return found;
}

class BatchNormFunction : public torch::autograd::Function<BatchNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const std::optional<at::Tensor>& beside, const Statistics& statistics,
                            double epsilon, kernels::Then then, Mode mode) {
    const at::Tensor residual = beside.value_or(at::Tensor());
    const auto by = scaling_of(statistics, epsilon, weight, bias);
    const at::Tensor y =
        with_stored_type(input, [&](auto type) { return scaled<decltype(type)>(input, residual, by, then); });
    // Without a residual the ReLU's zeros follow from the input, which is kept anyway.
    const bool keeps_output = residual.defined() && then == kernels::Then::relu;
    context->save_for_backward({input, weight, keeps_output ? y : at::Tensor()});
    context->saved_data["mean"] = statistics.mean;
    context->saved_data["inverse_deviation"] = by.inverse_deviation;
    context->saved_data["scale"] = by.scale;
    context->saved_data["shift"] = by.shift;
    context->saved_data["then"] = static_cast<std::int64_t>(then);
    context->saved_data["mode"] = static_cast<std::int64_t>(mode);
    context->saved_data["residual"] = residual.defined();
    return y;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const at::Tensor gradient = gradients[0].contiguous(kChannelsLast);
    const auto found =
        with_stored_type(gradient, [&](auto type) { return backward_as<decltype(type)>(context, gradient); });
    return {found.input,  found.weight, found.bias,   found.residual,
            at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  template <class S>
  static Gradients backward_as(torch::autograd::AutogradContext* context, const at::Tensor& gradient) {
    using T = kernels::Computed<S>;
    const auto saved = context->get_saved_variables();
    const auto kept = [&](const char* name) { return context->saved_data[name].toTensor(); };
    const at::Tensor scale = kept("scale");
    const at::Tensor shift = kept("shift");
    const kernels::MaskedGradient<S> g{
        .gradient = stored<const S>(gradient),
        .x = stored<const S>(saved[0]),
        .output = stored<const S>(saved[2]),
        .scale = stored<const T>(scale),
        .shift = stored<const T>(shift),
        .then = static_cast<kernels::Then>(context->saved_data["then"].toInt())};
    return gradients_of<S>(g, saved[0], saved[1], kept("mean"), kept("inverse_deviation"),
                           static_cast<Mode>(context->saved_data["mode"].toInt()),
                           context->saved_data["residual"].toBool());
  }
};

/// Adds this micro-batch's statistics to the step's sums, weighted by its samples. PyTorch's running variance
/// is the unbiased one.
void add_to_step(const Statistics& statistics, const at::Tensor& x, std::uint32_t micro_batch, Buffer& mean,
                 Buffer& variance) {
  const auto size = rows_of(x);
  if (size.rows < 2) return;
  const auto samples = static_cast<double>(x.size(0));
  const auto rows = static_cast<double>(size.rows);
  const at::NoGradGuard no_grad;
  mean.step_row(micro_batch).add_(statistics.mean, samples);
  variance.step_row(micro_batch).add_(statistics.variance, samples * rows / (rows - 1.0));
  mean.step_weight += samples;
  variance.step_weight += samples;
}

/// By LibTorch's operators, for what the own kernels do not take: images in fp16, or in a device's memory;
/// and where they are off.
at::Tensor library_batch_norm(const at::Tensor& x, const Parameter& weight, const Parameter& bias,
                              Buffer& mean, Buffer& variance, double epsilon, const Context& context) {
  const bool training = context.mode == Mode::training;
  const auto running = [&](const Buffer& buffer) { return training ? at::Tensor() : buffer.value; };
  const auto [y, found_mean, inverse_deviation] = at::native_batch_norm(
      x, weight.value, bias.value, running(mean), running(variance), training, 0.0, epsilon);
  if (training && context.pass == Pass::first) {
    const at::Tensor found_variance = inverse_deviation.detach().to(at::kDouble).pow(-2) - epsilon;
    add_to_step({found_mean.detach().to(at::kDouble), found_variance}, x, context.micro_batch, mean,
                variance);
  }
  return y;
}

}  // namespace

BatchNorm BatchNorm::add(const std::string& name, std::int64_t channels, std::vector<Parameter>& parameters,
                         std::vector<Buffer>& buffers, Slicing slicing) {
  using Kind = Initialisation::Kind;
  const BatchNorm place{parameters.size(), buffers.size()};
  parameters.push_back({name + ".weight", at::empty({channels}).requires_grad_(), {Kind::one}, slicing});
  parameters.push_back({name + ".bias", at::empty({channels}).requires_grad_(), {Kind::zero}, slicing});
  const auto running = [&](const char* part, const at::Tensor& value) {
    buffers.push_back({.name = name + part,
                       .value = value,
                       .update = Buffer::Update::moving_mean,
                       .momentum = kMomentum,
                       .step_sum = at::zeros({1, channels}, at::kDouble)});
  };
  running(".running_mean", at::zeros({channels}));
  running(".running_var", at::ones({channels}));
  buffers.push_back({.name = name + ".num_batches_tracked",
                     .value = at::zeros({}, at::kLong),
                     .update = Buffer::Update::count_steps});
  return place;
}

void BatchNorm::slice(Range part, std::vector<Parameter>& parameters, std::vector<Buffer>& buffers) const {
  for (const std::size_t i : {parameter, parameter + 1}) hold_slice(parameters.at(i), 0, part);
  for (const std::size_t i : {buffer, buffer + 1}) hold_slice(buffers.at(i), part);
}

at::Tensor batch_norm(const BatchNormInput& what, const BatchNorm& place,
                      const std::vector<Parameter>& parameters, std::vector<Buffer>& buffers,
                      const Context& context) {
  const at::Tensor x = what.input.contiguous(kChannelsLast);
  const at::Tensor residual =
      what.residual.defined() ? what.residual.to(x.scalar_type()).contiguous(kChannelsLast) : what.residual;
  Buffer& mean = buffers.at(place.buffer);
  Buffer& variance = buffers.at(place.buffer + 1);
  const Parameter& weight = parameters.at(place.parameter);
  const Parameter& bias = parameters.at(place.parameter + 1);
  if (context.mode == Mode::training && takes_fused_batch_norm(x, weight)) {
    return fused_batch_norm(x, residual, what.then, weight, bias, mean, variance, place.epsilon, context);
  }
  if (!own_passes_take(x)) {
    const at::Tensor y = library_batch_norm(x, weight, bias, mean, variance, place.epsilon, context);
    const at::Tensor sum = residual.defined() ? y + residual : y;
    return what.then == kernels::Then::relu ? sum.relu() : sum;
  }
  Statistics statistics;
  if (context.mode == Mode::training) {
    statistics = moments(x);
    if (context.pass == Pass::first) add_to_step(statistics, x, context.micro_batch, mean, variance);
  } else {
    statistics = {mean.value.to(at::kDouble), variance.value.to(at::kDouble)};
  }
  return BatchNormFunction::apply(x, weight.value, bias.value,
                                  residual.defined() ? std::optional(residual) : std::nullopt, statistics,
                                  place.epsilon, what.then, context.mode);
}

}  // namespace dtrain::models
