#include <ATen/ops/convolution_backward_native.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

// Takes the place of LibTorch's convolution_backward on CPUs, for all that call it: a layer, an operation of
// an exported program, gradients by sample. All but one case goes on to LibTorch.
//
// That case: oneDNN, which LibTorch 2.11 calls, writes outside its memory for the gradient of a weight with
// kernel 1, no padding and a stride above 1, where images lie channels last and an image of the larger side
// has fewer channels than a vector has numbers (https://github.com/uxlfoundation/oneDNN/issues/6035). It ends
// or hangs the process or, worse, gives wrong gradients. A kernel of one pixel sees each stride-th pixel:
// LibTorch is given those alone, and a stride of 1. perf/results/random/README.md has lines that show the
// fault.
namespace dtrain::models {
namespace {

using PointwiseGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// The most floats that one vector holds.
constexpr std::int64_t kWidestVector = 16;

bool all_are(at::IntArrayRef values, std::int64_t wanted) {
  return std::ranges::all_of(values, [&](std::int64_t value) { return value == wanted; });
}

/// In half precision it is not known which numbers of channels are safe on which processor: all go around it.
bool goes_astray(const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding) {
  const bool few_channels = weight.scalar_type() == at::kFloat && weight.size(1) < kWidestVector;
  return (few_channels || at::isReducedFloatingType(weight.scalar_type())) && !all_are(stride, 1) &&
         all_are(padding, 0) && all_are(weight.sizes().slice(2), 1);
}

/// The pixels of `large` that the kernel sees, as a view of the sizes of `small` but for channels.
at::Tensor seen_in(const at::Tensor& large, const at::Tensor& small, at::IntArrayRef stride) {
  at::Tensor seen = large;
  for (std::int64_t dim = 2; dim < large.dim(); ++dim) {
    const auto step = stride[stride.size() == 1 ? 0 : static_cast<std::size_t>(dim - 2)];
    seen = seen.slice(dim, 0, (small.size(dim) - 1) * step + 1, step);
  }
  return seen;
}

PointwiseGradients convolution_backward(const at::Tensor& of_output, const at::Tensor& input,
                                        const at::Tensor& weight, at::OptionalIntArrayRef bias_sizes,
                                        at::IntArrayRef stride, at::IntArrayRef padding,
                                        at::IntArrayRef dilation, bool transposed,
                                        at::IntArrayRef output_padding, std::int64_t groups,
                                        std::array<bool, 3> wanted) {
  if (!goes_astray(weight, stride, padding)) {
    return at::native::convolution_backward(of_output, input, weight, bias_sizes, stride, padding, dilation,
                                            transposed, output_padding, groups, wanted);
  }
  const std::vector<std::int64_t> once(stride.size(), 1);
  const std::vector<std::int64_t> none(stride.size(), 0);
  const auto of_seen = [&](const at::Tensor& gradient, const at::Tensor& images, std::array<bool, 3> those) {
    return at::native::convolution_backward(gradient, images, weight, bias_sizes, once, none, once,
                                            transposed, none, groups, those);
  };
  if (transposed) {
    auto [of_input, of_weight, of_bias] =
        of_seen(seen_in(of_output, input, stride), input, {wanted[0], wanted[1], false});
    if (wanted[2]) of_bias = of_output.transpose(0, 1).flatten(1).sum(1);  // pixels that no kernel makes, too
    return {of_input, of_weight, of_bias};
  }
  auto [of_input, of_weight, of_bias] = of_seen(of_output, seen_in(input, of_output, stride), wanted);
  if (wanted[0]) {
    const at::Tensor whole = at::zeros_like(input);
    seen_in(whole, of_output, stride).copy_(of_input);
    of_input = whole;
  }
  return {of_input, of_weight, of_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("convolution_backward", TORCH_FN(convolution_backward));
}

}  // namespace dtrain::models

/// CMakeLists.txt names it, so that this file is linked although nothing calls it.
extern "C" {
extern const int dtrain_pointwise_backward;
const int dtrain_pointwise_backward = 1;
}
