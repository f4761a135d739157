#include "models/layers/convolution/max_pool2d.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <type_traits>

#include "kernels/convolution/max_pool.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/layers/convolution/chwn_conv.hpp"
#include "models/layers/fused/fused_max_pool.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kPoolGrain = 1 << 15;  // elements that are worth a thread

/// How images lie: row-major, with their channels innermost, or with the images innermost.
enum class Lie { rows, channels_last, chwn };

/// What is pooled: `inner` values of each pixel side by side.
struct Pooled {
  kernels::PoolSize size;
  std::size_t inner = 1;

  Pooled(Lie lie, at::IntArrayRef shape) {
    const auto extent = [&](std::size_t dim) { return static_cast<std::size_t>(shape[dim]); };
    size = {lie == Lie::rows            ? extent(0) * extent(1)
            : lie == Lie::channels_last ? extent(0)
                                        : extent(1),
            extent(2), extent(3)};
    if (lie != Lie::rows) inner = extent(lie == Lie::chwn ? 0 : 1);
  }
  std::size_t input_plane() const { return size.height * size.width * inner; }
  std::size_t output_plane() const { return (size.height / 2) * (size.width / 2) * inner; }

  /// Calls `call(planes, first plane)` for the parts that threads take.
  template <class Call>
  void over_planes(const Call& call) const {
    const auto grain = std::max<std::int64_t>(
        1, kPoolGrain / static_cast<std::int64_t>(std::max<std::size_t>(1, input_plane())));
    at::parallel_for(0, static_cast<std::int64_t>(size.planes), grain,
                     [&](std::int64_t begin, std::int64_t end) {
                       call(kernels::PoolSize{static_cast<std::size_t>(end - begin), size.height, size.width},
                            static_cast<std::size_t>(begin));
                     });
  }
};

at::Tensor empty_images(Lie lie, at::IntArrayRef shape, const at::TensorOptions& options) {
  if (lie == Lie::chwn) return empty_chwn(shape, options);
  return at::empty(shape,
                   options.memory_format(lie == Lie::rows ? at::MemoryFormat::Contiguous : kChannelsLast));
}

at::Tensor lying(Lie lie, const at::Tensor& images) {
  if (lie == Lie::chwn) return as_chwn(images);
  return images.contiguous(lie == Lie::rows ? at::MemoryFormat::Contiguous : kChannelsLast);
}

/// `output` and `which`, where in each window the maximum was, both lying as `input` does.
void pool(const at::Tensor& output, const at::Tensor& which, const at::Tensor& input, Lie lie) {
  const Pooled pooled(lie, input.sizes());
  auto* const places = which.data_ptr<std::uint8_t>();
  with_stored_type(input, [&](auto type) {
    using S = decltype(type);
    pooled.over_planes([&](const kernels::PoolSize& part, std::size_t first) {
      const S* const from = stored<const S>(input) + first * pooled.input_plane();
      S* const to = stored<S>(output) + first * pooled.output_plane();
      auto* const of_part = places + first * pooled.output_plane();
      if constexpr (!std::is_same_v<S, kernels::Bfloat16>) {
        if (lie == Lie::rows) return kernels::max_pool_2x2(to, of_part, from, part);
      }
      kernels::max_pool_2x2_inner(to, of_part, from, part, pooled.inner);
    });
  });
}

void unpool(const at::Tensor& result, const at::Tensor& gradient, const at::Tensor& which, Lie lie) {
  const Pooled pooled(lie, result.sizes());
  const auto* const places = which.const_data_ptr<std::uint8_t>();
  with_stored_type(gradient, [&](auto type) {
    using S = decltype(type);
    pooled.over_planes([&](const kernels::PoolSize& part, std::size_t first) {
      S* const to = stored<S>(result) + first * pooled.input_plane();
      const S* const from = stored<const S>(gradient) + first * pooled.output_plane();
      const auto* const of_part = places + first * pooled.output_plane();
      if constexpr (!std::is_same_v<S, kernels::Bfloat16>) {
        if (lie == Lie::rows) return kernels::max_pool_2x2_backward(to, from, of_part, part);
      }
      kernels::max_pool_2x2_inner_backward(to, from, of_part, part, pooled.inner);
    });
  });
}

Shape halved(at::IntArrayRef shape) { return {shape[0], shape[1], shape[2] / 2, shape[3] / 2}; }

class MaxPool2x2 : public torch::autograd::Function<MaxPool2x2> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, Lie lie) {
    const at::Tensor which = empty_images(lie, halved(input.sizes()), at::kByte);
    const at::Tensor output = empty_images(lie, which.sizes(), input.options());
    pool(output, which, input, lie);
    context->saved_data["which"] = which;
    context->saved_data["shape"] = input.sizes().vec();
    context->saved_data["lie"] = static_cast<std::int64_t>(lie);
    return output;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto lie = static_cast<Lie>(context->saved_data["lie"].toInt());
    const at::Tensor gradient = lying(lie, gradients[0]);
    const at::Tensor result =
        empty_images(lie, context->saved_data["shape"].toIntVector(), gradient.options());
    unpool(result, gradient, context->saved_data["which"].toTensor(), lie);
    return {result, at::Tensor()};
  }
};

class DirectMaxPool final : public DirectPass {
 public:
  at::Tensor forward(const at::Tensor& given) override {
    const at::Tensor input = as_chwn(given);
    const Shape shape = halved(input.sizes());
    input_shape_ = input.sizes().vec();
    kept_chwn(which_, shape, at::kByte);
    pool(kept_chwn(output_, shape, input.options()), which_, input, Lie::chwn);
    return output_;
  }
  at::Tensor backward(const at::Tensor& given, bool wanted) override {
    if (!wanted) return {};
    const at::Tensor gradient = as_chwn(given);
    unpool(kept_chwn(input_gradient_, input_shape_, gradient.options()), gradient, which_, Lie::chwn);
    return input_gradient_;
  }

 private:
  Shape input_shape_;
  at::Tensor which_;
  at::Tensor output_;
  at::Tensor input_gradient_;
};

/// How images lie that the kernels take; nothing: LibTorch pools them.
std::optional<Lie> lie_of(const at::Tensor& images) {
  if (!own_passes_take(images)) return std::nullopt;
  if (images.is_contiguous()) return Lie::rows;
  if (images.is_contiguous(kChannelsLast)) return Lie::channels_last;
  return is_chwn(images) ? std::optional(Lie::chwn) : std::nullopt;
}

}  // namespace

Tensors MaxPool2d::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  output_shapes({input.sizes().vec()});
  if (const auto lie = halves() ? lie_of(input) : std::nullopt) return {MaxPool2x2::apply(input, *lie)};
  if (halves() && takes_fused_max_pool(input)) return {fused_max_pool(input)};
  return {at::max_pool2d(input, extent_, stride_, padding_)};
}

std::unique_ptr<DirectPass> MaxPool2d::direct_pass() const {
  return halves() ? std::make_unique<DirectMaxPool>() : nullptr;
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
  const double places = outputs * (halves() && own_kernels_are_on() ? 1.0 : 8.0);  // where each maximum was
  return {.flops = elements,
          .parameter_bytes = 0.0,
          .activation_bytes = outputs * 4.0 + places,
          .inside_bytes = places};
}

}  // namespace dtrain::models
