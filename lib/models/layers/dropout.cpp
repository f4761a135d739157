#include "models/layers/dropout.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.hpp"
#include "kernels/device_kernels.hpp"
#include "kernels/dropout.hpp"
#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/precision.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

kernels::LogicalSlice place_of(const at::Tensor& input, const Flow& flow) {
  const auto count = static_cast<std::size_t>(input.numel());
  if (!flow.sliced() || count == 0) return {.columns = count};
  const auto rows = static_cast<std::size_t>(input.size(0));
  const auto columns = count / rows;
  const auto each = columns / static_cast<std::size_t>(flow.part.size());  // pixels of a channel
  return {.first_index = static_cast<std::uint64_t>(flow.part.begin) * each,
          .rows = rows,
          .columns = columns,
          .row_stride = static_cast<std::uint64_t>(flow.whole) * each};
}

at::Tensor masked(const at::Tensor& input, double probability, const MaskKey& key, const Flow& flow);

/// The CPU's mask: drawn by the device's own kernel, or, on a device that dtrain has none for, on the CPU.
at::Tensor masked_on_device(const at::Tensor& input, double probability, const MaskKey& key,
                            const Flow& flow) {
  const auto* kernels = kernels::device_kernels();
  const auto element = element_of(input.scalar_type());
  if (kernels == nullptr || !element) {
    const at::Tensor mask = masked(at::ones(input.sizes(), at::kFloat), probability, key, flow);
    return input * mask.to(input.options());
  }
  const at::Tensor dense = input.contiguous();
  at::Tensor output = at::empty_like(dense);
  const auto* step = key.step.defined() ? key.step.const_data_ptr<std::int32_t>() : nullptr;
  kernels->dropout(output.data_ptr(), dense.const_data_ptr(), *element, place_of(dense, flow), key.key,
                   reinterpret_cast<const std::uint32_t*>(step), probability,
                   computing_stream(input.device()));
  return output;
}

at::Tensor masked(const at::Tensor& input, double probability, const MaskKey& key, const Flow& flow) {
  if (!input.is_cpu()) return masked_on_device(input, probability, key, flow);
  if (!is_full_on_cpu(input)) return masked(in_full(input), probability, key, flow).to(input.scalar_type());
  const at::Tensor dense = input.contiguous();
  at::Tensor output = at::empty_like(dense);
  const auto place = place_of(dense, flow);
  if (dense.scalar_type() == at::kDouble) {
    kernels::dropout(output.data_ptr<double>(), dense.const_data_ptr<double>(), place, key.key, probability);
  } else {
    kernels::dropout(output.data_ptr<float>(), dense.const_data_ptr<float>(), place, key.key, probability);
  }
  return output;
}

/// Keeps nothing but the key: backward draws the same mask again.
class MaskedScale : public torch::autograd::Function<MaskedScale> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            double probability, const MaskKey& mask, const Flow& flow) {
    const auto& key = mask.key;
    context->saved_data["whole"] = flow.whole;
    context->saved_data["begin"] = flow.part.begin;
    context->saved_data["end"] = flow.part.end;
    context->saved_data["probability"] = probability;
    context->saved_data["seed"] = static_cast<std::int64_t>(key.seed);
    context->saved_data["purpose"] = static_cast<std::int64_t>(key.purpose);
    context->saved_data["major"] = static_cast<std::int64_t>(key.major);
    context->saved_data["minor"] = static_cast<std::int64_t>(key.minor);
    context->saved_data["stream"] = static_cast<std::int64_t>(key.stream);
    context->saved_data["step"] = mask.step;
    return masked(input, probability, mask, flow);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto number = [&](const char* name) { return context->saved_data[name].toInt(); };
    const kernels::RandomKey key{
        static_cast<std::uint64_t>(number("seed")), static_cast<kernels::Purpose>(number("purpose")),
        static_cast<std::uint32_t>(number("major")), static_cast<std::uint32_t>(number("minor")),
        static_cast<std::uint32_t>(number("stream"))};
    const Flow flow{.whole = number("whole"), .part = {number("begin"), number("end")}};
    const MaskKey mask{key, context->saved_data["step"].toTensor()};
    return {masked(gradients[0], context->saved_data["probability"].toDouble(), mask, flow), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Dropout::Dropout(const std::string& name, double probability) : Layer(name), probability_(probability) {
  require(probability >= 0.0 && probability < 1.0, fmt::format("dropout {} is outside [0, 1)", probability),
          {.subject = fmt::format("layer {}", name), .advice = "use 0 to below 1", .code = ExitCode::usage});
}

Tensors Dropout::forward(const Tensors& inputs, const Context& context) {
  if (context.mode == Mode::evaluation || probability_ == 0.0) return {inputs.at(0)};
  return {dropout(inputs.at(0), probability_, context.dropout_key(kernels::stream_of(name())), flow_)};
}

Flow Dropout::slice(TensorGroup& /*group*/, const Flow& flow) {
  flow_ = flow;
  return flow;
}

Cost Dropout::cost(const std::vector<Shape>& inputs) const {
  const double elements = element_count(inputs.at(0));
  const double tensors = probability_ > 0.0 ? 1.0 + masks_kept_by_dropout() : 0.0;
  return {.flops = elements, .activation_bytes = elements * tensors * 4.0};
}

double masks_kept_by_dropout() { return own_kernels_are_on() ? 0.0 : 1.0; }

at::Tensor dropout(const at::Tensor& input, double probability, const MaskKey& key, const Flow& flow) {
  if (!own_kernels_are_on()) {  // LibTorch has no such mask, but it can multiply by one
    return input * masked(at::ones_like(input.detach()), probability, key, flow);
  }
  return MaskedScale::apply(input, probability, key, flow);
}

}  // namespace dtrain::models
