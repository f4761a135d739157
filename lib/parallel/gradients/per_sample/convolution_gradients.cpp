#include "parallel/gradients/per_sample/convolution_gradients.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "parallel/gradients/per_sample/by_sample.hpp"

namespace dtrain::parallel {
namespace {

bool all_are(const std::vector<std::int64_t>& values, std::int64_t wanted) {
  return std::ranges::all_of(values, [&](std::int64_t value) { return value == wanted; });
}

/// For both dims of an image, where one number stands for both.
std::int64_t at_dim(const std::vector<std::int64_t>& values, std::size_t dim) {
  return values.size() > dim ? values[dim] : values.at(0);
}

}  // namespace

bool ConvolutionGradients::has_patches(const at::Tensor& weight) const {
  return weight.dim() == 4 && how_.groups == 1 && all_are(how_.dilation, 1);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionGradients::backward(
    const at::Tensor& input, const at::Tensor& gradient, const at::Tensor& weight,
    std::array<bool, 3> wanted) const {
  return at::convolution_backward(gradient, input, weight, at::OptionalIntArrayRef(), how_.stride,
                                  how_.padding, how_.dilation, how_.transposed, how_.output_padding,
                                  how_.groups, wanted);
}

void ConvolutionGradients::add_squares(const at::Tensor& input, const at::Tensor& gradient,
                                       const at::Tensor& weight, at::Tensor& squares) {
  const auto n = input.size(0);
  if (has_patches(weight)) {
    const auto& images = how_.transposed ? gradient : input;
    const auto& out = how_.transposed ? input : gradient;
    add_by_patches(images, out.reshape({n, out.size(1), -1}), weight, squares);
  } else {
    add_one_by_one(input, gradient, weight, squares);
  }
  if (!by_sample_.defined()) squares += rounding(input, gradient, weight);
}

/// An element of an image is in at most as many patches as a kernel has positions.
at::Tensor ConvolutionGradients::rounding(const at::Tensor& input, const at::Tensor& gradient,
                                          const at::Tensor& weight) {
  const auto positions =
      static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0) * weight.size(1));
  return squares_of_rounding(squares_by_sample(gradient), squares_by_sample(input) * positions);
}

void ConvolutionGradients::add_one_by_one(const at::Tensor& input, const at::Tensor& gradient,
                                          const at::Tensor& weight, at::Tensor& squares) {
  const auto n = input.size(0);
  if (n * weight.numel() <= kMostKept) by_sample_ = at::empty({n, weight.numel()}, gradient.options());
  for (std::int64_t i = 0; i < n; ++i) {
    const auto one =
        std::get<1>(backward(input.narrow(0, i, 1), gradient.narrow(0, i, 1), weight, {false, true, false}));
    squares.narrow(0, i, 1) += squares_by_sample(one.unsqueeze(0));
    if (by_sample_.defined()) by_sample_.select(0, i).copy_(one.reshape({-1}));
  }
}

at::Tensor ConvolutionGradients::weighted_sum(const at::Tensor& input, const at::Tensor& gradient,
                                              const at::Tensor& weight, const at::Tensor& factors) const {
  if (by_sample_.defined()) return at::matmul(factors, by_sample_).view(weight.sizes());
  return std::get<1>(backward(input, weighted(gradient, factors), weight, {false, true, false}));
}

/// A few samples at a time: their patches stay in the cache.
void ConvolutionGradients::add_by_patches(const at::Tensor& input, const at::Tensor& out,
                                          const at::Tensor& weight, at::Tensor& squares) {
  const auto positions = out.size(2);
  const auto patch = weight.numel() / weight.size(0);
  const bool by_positions = 4 * positions * positions <= patch * out.size(1);
  const auto each = patch * positions + (by_positions ? 2 * positions * positions : weight.numel());
  const auto at_once = std::max<std::int64_t>(1, kMostAtOnce / each);
  const auto elements = weight.numel();
  if (!by_positions && out.size(0) * elements <= kMostKept)
    by_sample_ = at::empty({out.size(0), elements}, out.options());
  for (std::int64_t begin = 0; begin < out.size(0); begin += at_once) {
    const auto count = std::min(at_once, out.size(0) - begin);
    take_patches(input.narrow(0, begin, count), weight);
    const auto of_output = out.narrow(0, begin, count);
    auto part = squares.narrow(0, begin, count);
    if (by_positions) {
      add_squares_by_pairs(of_output.transpose(1, 2), patches_.transpose(1, 2), part);
    } else {
      const auto gradients = at::bmm(of_output, patches_.transpose(1, 2)).view({count, elements});
      part += squares_by_sample(gradients);
      if (by_sample_.defined()) by_sample_.narrow(0, begin, count).copy_(gradients);
    }
  }
}

/// patches_ of [n, channels, H, W]: rows of the image are copied, several times faster than at::im2col.
void ConvolutionGradients::take_patches(const at::Tensor& images, const at::Tensor& weight) {
  const auto high = at_dim(how_.padding, 0);
  const auto wide = at_dim(how_.padding, 1);
  const auto whole = high + wide > 0 ? at::constant_pad_nd(images, {wide, wide, high, high}) : images;
  const auto windows =
      whole.unfold(2, weight.size(2), at_dim(how_.stride, 0))
          .unfold(3, weight.size(3), at_dim(how_.stride, 1));  // [n, channels, H', W', kernel, kernel]
  if (!patches_.defined()) patches_ = at::empty({0}, images.options());
  const auto elements = windows.size(1) * windows.size(4) * windows.size(5);
  patches_.resize_(
      {images.size(0), elements, windows.size(2) * windows.size(3)});  // the same memory each time
  patches_
      .view({images.size(0), windows.size(1), windows.size(4), windows.size(5), windows.size(2),
             windows.size(3)})
      .copy_(windows.permute({0, 1, 4, 5, 2, 3}));
}

}  // namespace dtrain::parallel
