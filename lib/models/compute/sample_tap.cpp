#include "models/compute/sample_tap.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

namespace dtrain::models {
namespace {

using UseKind = ParameterUse::Kind;

thread_local SampleTap* tap_of_thread = nullptr;  // as LibTorch's modes are

/// `parameter` as a constant where its uses are taken down.
at::Tensor as_used(const at::Tensor& parameter, const Parameter* taken) {
  return taken != nullptr ? parameter.detach() : parameter;
}

/// For the trailing dims of an output.
Shape broadcast_shape(at::IntArrayRef of_parameter, std::int64_t dims) {
  Shape shape(static_cast<std::size_t>(
                  std::max<std::int64_t>(dims - static_cast<std::int64_t>(of_parameter.size()), 0)),
              1);
  shape.insert(shape.end(), of_parameter.begin(), of_parameter.end());
  return shape;
}

/// [channels] beside [n, channels, ...].
Shape channel_shape(std::int64_t channels, std::int64_t dims) {
  Shape shape(static_cast<std::size_t>(dims), 1);
  shape.at(1) = channels;
  return shape;
}

/// What is normalised, then scaled and shifted by parameters in the shape `shape`.
at::Tensor scaled_and_shifted(at::Tensor values, const at::Tensor& weight, const at::Tensor& bias,
                              const Shape& shape) {
  auto* tap = SampleTap::open();
  std::vector<ParameterUse> uses;
  auto output = values;
  if (weight.defined()) {
    auto* taken = tap->parameter_of(weight);
    output = output * as_used(weight, taken).view(shape);
    if (taken != nullptr)
      uses.push_back({.kind = UseKind::scale, .parameter = taken, .input = values.detach(), .shape = shape});
  }
  if (bias.defined()) {
    auto* taken = tap->parameter_of(bias);
    output = output + as_used(bias, taken).view(shape);
    if (taken != nullptr) uses.push_back({.kind = UseKind::shift, .parameter = taken, .shape = shape});
  }
  return tap->take(std::move(output), std::move(uses));
}

}  // namespace

SampleTap::Scope::Scope(SampleTap& tap) : before_(std::exchange(tap_of_thread, &tap)) {}
SampleTap::Scope::~Scope() { tap_of_thread = before_; }

SampleTap::PackedRows::PackedRows(const at::Tensor& samples) : tap_(open()) {
  if (tap_ != nullptr) tap_->samples_ = samples;
}
SampleTap::PackedRows::~PackedRows() {
  if (tap_ != nullptr) tap_->samples_.reset();
}

SampleTap* SampleTap::open() { return at::GradMode::is_enabled() ? tap_of_thread : nullptr; }

Parameter* SampleTap::parameter_of(const at::Tensor& tensor) const {
  if (!tensor.defined()) return nullptr;
  const auto place =
      std::ranges::find_if(parameters_, [&](const Parameter* one) { return one->value.is_same(tensor); });
  return place == parameters_.end() || (*place)->frozen ? nullptr : *place;
}

at::Tensor SampleTap::take(at::Tensor output, std::vector<ParameterUse> uses) {
  if (uses.empty()) return output;
  // A tensor of the graph, which later operations may write to.
  if (!output.requires_grad()) output = output + at::zeros({1}, output.options()).requires_grad_();
  std::vector<std::shared_ptr<ParameterUse>> of_output;
  for (auto& use : uses) of_output.push_back(expect(std::move(use)));
  output.register_hook([of_output](const at::Tensor& gradient) {
    for (const auto& use : of_output) use->gradient = gradient.detach();
  });
  return output;
}

std::shared_ptr<ParameterUse> SampleTap::expect(ParameterUse use) {
  use.samples = samples_;
  if (use.input.defined()) use.version = use.input._version();
  uses_.push_back(std::make_shared<ParameterUse>(std::move(use)));
  return uses_.back();
}

at::Tensor tapped_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  auto* tap = SampleTap::open();
  if (tap == nullptr) return at::linear(input, weight, bias);
  auto* of_weight = tap->parameter_of(weight);
  auto* of_bias = tap->parameter_of(bias);
  auto output = at::linear(input, as_used(weight, of_weight),
                           bias.defined() ? std::optional(as_used(bias, of_bias)) : std::nullopt);
  std::vector<ParameterUse> uses;
  if (of_weight != nullptr)
    uses.push_back({.kind = UseKind::product, .parameter = of_weight, .input = input.detach()});
  if (of_bias != nullptr) {
    uses.push_back(
        {.kind = UseKind::shift, .parameter = of_bias, .shape = broadcast_shape(bias.sizes(), output.dim())});
  }
  return tap->take(std::move(output), std::move(uses));
}

at::Tensor tapped_product(const at::Tensor& input, const at::Tensor& weight) {
  auto* tap = SampleTap::open();
  auto* taken = tap != nullptr ? tap->parameter_of(weight) : nullptr;
  if (taken == nullptr) return at::matmul(input, weight);
  return tap->take(
      at::matmul(input, weight.detach()),
      {{.kind = UseKind::product, .parameter = taken, .input = input.detach(), .swapped = true}});
}

at::Tensor tapped_embedding(const at::Tensor& table, const at::Tensor& ids, std::int64_t padding) {
  auto* tap = SampleTap::open();
  auto* taken = tap != nullptr ? tap->parameter_of(table) : nullptr;
  if (taken == nullptr) return at::embedding(table, ids, padding);
  return tap->take(at::embedding(table.detach(), ids),
                   {{.kind = UseKind::lookup, .parameter = taken, .input = ids, .padding = padding}});
}

at::Tensor tapped_layer_norm(const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& weight,
                             const at::Tensor& bias, double eps) {
  if (SampleTap::open() == nullptr) return at::layer_norm(input, shape, weight, bias, eps);
  return scaled_and_shifted(at::layer_norm(input, shape, {}, {}, eps), weight, bias,
                            broadcast_shape(shape, input.dim()));
}

at::Tensor tapped_group_norm(const at::Tensor& input, std::int64_t groups, const at::Tensor& weight,
                             const at::Tensor& bias, double eps) {
  if (SampleTap::open() == nullptr) return at::group_norm(input, groups, weight, bias, eps);
  return scaled_and_shifted(at::group_norm(input, groups, {}, {}, eps), weight, bias,
                            channel_shape(input.size(1), input.dim()));
}

at::Tensor tapped_sum(const at::Tensor& input, const at::Tensor& parameter, std::int64_t rows) {
  const auto part = [&](const at::Tensor& whole) { return rows < 0 ? whole : whole.narrow(0, 0, rows); };
  auto* tap = SampleTap::open();
  auto* taken = tap != nullptr ? tap->parameter_of(parameter) : nullptr;
  if (taken == nullptr) return input + part(parameter);
  const auto values = part(parameter.detach());
  auto output = input + values;
  const auto shape = broadcast_shape(values.sizes(), output.dim());
  return tap->take(std::move(output), {{.kind = UseKind::shift, .parameter = taken, .shape = shape}});
}

at::Tensor tapped_scaled(const at::Tensor& input, const at::Tensor& parameter) {
  auto* tap = SampleTap::open();
  auto* taken = tap != nullptr ? tap->parameter_of(parameter) : nullptr;
  if (taken == nullptr) return input * parameter;
  auto output = input * parameter.detach();
  const auto shape = broadcast_shape(parameter.sizes(), output.dim());
  return tap->take(std::move(output),
                   {{.kind = UseKind::scale, .parameter = taken, .input = input.detach(), .shape = shape}});
}

at::Tensor tapped_convolution(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                              const ParameterUse::Convolution& how) {
  auto* tap = SampleTap::open();
  auto* of_weight = tap != nullptr ? tap->parameter_of(weight) : nullptr;
  auto* of_bias = tap != nullptr ? tap->parameter_of(bias) : nullptr;
  auto output =
      at::convolution(input, as_used(weight, of_weight),
                      bias.defined() ? std::optional(as_used(bias, of_bias)) : std::nullopt, how.stride,
                      how.padding, how.dilation, how.transposed, how.output_padding, how.groups);
  std::vector<ParameterUse> uses;
  if (of_weight != nullptr) {
    uses.push_back(
        {.kind = UseKind::convolution, .parameter = of_weight, .input = input.detach(), .convolved = how});
  }
  if (of_bias != nullptr) {
    uses.push_back(
        {.kind = UseKind::shift, .parameter = of_bias, .shape = channel_shape(bias.numel(), output.dim())});
  }
  return tap != nullptr ? tap->take(std::move(output), std::move(uses)) : output;
}

}  // namespace dtrain::models
