#include "models/layers/convolution/patch_conv.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <optional>

#include "kernels/convolution/patches.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/product_weight.hpp"
#include "models/layers/convolution/kept_convolution.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kFewChannels = 32;
/// Of gathered windows: half of a second-level cache.
constexpr std::size_t kPatchElements = std::size_t{1} << 17;
/// In half precision products by tiles are so fast that they want more rows at a time.
constexpr std::size_t kHalfPatchElements = std::size_t{1} << 22;
/// Of a weight; below, oneDNN's convolutions are faster. Above, those of AMX pass over the weight's gradient
/// for each image: for 512 channels of 2 x 2 pixels at a fiftieth of the speed of products.
constexpr std::int64_t kLargeWeight = 1 << 19;

/// The larger side of a convolution, whose windows are gathered, and the smaller one, a pixel per window.
kernels::PatchSize patches_of(at::IntArrayRef large, at::IntArrayRef small,
                              const Conv2d::Geometry& geometry) {
  const auto number = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  return {.images = number(large[0]),
          .height = number(large[2]),
          .width = number(large[3]),
          .channels = number(large[1]),
          .kernel = number(geometry.kernel),
          .stride = number(geometry.stride),
          .padding = number(geometry.padding),
          .rows = number(small[2]),
          .columns = number(small[3])};
}

/// [N, C, H, W] with channels last as the matrix [N H W, C].
at::Tensor pixels(const at::Tensor& images) {
  return images.permute({0, 2, 3, 1}).view({-1, images.size(1)});
}

/// [A, B, k, k] with channels last as the matrix [A, k k B].
at::Tensor as_matrix(const at::Tensor& weight) {
  return weight.detach().permute({0, 2, 3, 1}).view({weight.size(0), -1});
}

/// Some images and their windows, gathered or to be scattered: [patches, k k C].
struct PatchBlock {
  kernels::PatchSize size;  // of these images
  std::int64_t image = 0;   // the first
  std::int64_t pixel = 0;   // its first window
  at::Tensor windows;
};

/// Images of a block: as many as fit the cache, in blocks of nearly the same size.
std::size_t images_at_once(const kernels::PatchSize& whole, const at::TensorOptions& options) {
  const bool half = c10::isReducedFloatingType(c10::typeMetaToScalarType(options.dtype()));
  const std::size_t of_image = std::max<std::size_t>(1, whole.rows * whole.columns * whole.patch());
  const std::size_t most = std::max<std::size_t>(1, (half ? kHalfPatchElements : kPatchElements) / of_image);
  const std::size_t blocks = std::max<std::size_t>(1, (whole.images + most - 1) / most);
  return std::max<std::size_t>(1, (whole.images + blocks - 1) / blocks);
}

/// Calls `work(block)` for all images.
template <class Work>
void over_blocks(const kernels::PatchSize& whole, const at::TensorOptions& options, const Work& work) {
  const std::size_t per_image = whole.rows * whole.columns;
  const std::size_t images = images_at_once(whole, options);
  at::Tensor memory = at::empty({static_cast<std::int64_t>(std::min(images, whole.images) * per_image),
                                 static_cast<std::int64_t>(whole.patch())},
                                options);
  for (std::size_t first = 0; first < whole.images; first += images) {
    kernels::PatchSize size = whole;
    size.images = std::min(images, whole.images - first);
    work(PatchBlock{size, static_cast<std::int64_t>(first), static_cast<std::int64_t>(first * per_image),
                    memory.narrow(0, 0, static_cast<std::int64_t>(size.patches()))});
  }
}

/// The images of a block, each thread some: call(first element, size, first window).
template <class Call>
void over_images(const PatchBlock& block, const Call& call) {
  at::parallel_for(0, static_cast<std::int64_t>(block.size.images), 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels::PatchSize part = block.size;
                     part.images = static_cast<std::size_t>(end - begin);
                     const std::size_t image = part.height * part.width * part.channels;
                     const std::size_t windows = part.rows * part.columns * part.patch();
                     call(static_cast<std::size_t>(block.image + begin) * image, part,
                          static_cast<std::size_t>(begin) * windows);
                   });
}

void gather(const PatchBlock& block, const at::Tensor& images) {
  with_stored_type(images, [&](auto type) {
    using S = decltype(type);
    over_images(block, [&](std::size_t image, const kernels::PatchSize& size, std::size_t window) {
      kernels::gather_patches(stored<S>(block.windows) + window, stored<const S>(images) + image, size);
    });
  });
}

/// Windows in half precision are added to floats.
void scatter(const PatchBlock& block, const at::Tensor& images) {
  with_stored_type(block.windows, [&](auto type) {
    using S = decltype(type);
    using T = kernels::Computed<S>;
    over_images(block, [&](std::size_t image, const kernels::PatchSize& size, std::size_t window) {
      kernels::scatter_patches(stored<T>(images) + image, stored<const S>(block.windows) + window, size);
    });
  });
}

at::Tensor rows_of(const at::Tensor& matrix, const PatchBlock& block) {
  return matrix.narrow(0, block.pixel, block.windows.size(0));
}

/// sum (+)= small^T windows: the weight's gradient [small channels, k k large channels].
void add_weight_gradient(at::Tensor& sum, const at::Tensor& small, const PatchBlock& block) {
  const at::Tensor left = rows_of(small, block).t();
  if (block.image == 0) {
    at::mm_out(sum, left, block.windows);
  } else {
    at::addmm_out(sum, sum, left, block.windows);
  }
}

at::Tensor empty_images(const at::Tensor& like, std::int64_t channels, std::int64_t height,
                        std::int64_t width) {
  return at::empty({like.size(0), channels, height, width}, like.options().memory_format(kChannelsLast));
}

/// To which each block of images `x` adds its part; the first one writes it.
at::Tensor memory_of_weight_gradient(const KeptConvolution& kept, const at::Tensor& x) {
  const at::Tensor memory = kept.weight->take_gradient_memory(kChannelsLast);
  if (x.size(0) == 0) memory.zero_();
  return memory;
}

class PatchConv : public torch::autograd::Function<PatchConv> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            c10::intrusive_ptr<KeptConvolution> kept) {
    const auto& g = kept->geometry;
    context->save_for_backward({input});
    KeptConvolution::keep(context, kept);
    return at::conv2d(input, weight, bias, g.stride, g.padding);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    KeptConvolution& kept = KeptConvolution::of(context);
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous(kChannelsLast);
    const at::Tensor small = pixels(dy);
    const at::Tensor matrix = as_matrix(kept.weight->value);
    const bool needs_input = context->needs_input_grad(0);
    at::Tensor dx;
    if (needs_input) dx = at::empty(x.sizes(), x.options().memory_format(kChannelsLast)).zero_();
    const at::Tensor dweight = memory_of_weight_gradient(kept, x);
    at::Tensor sum = as_matrix(dweight);
    over_blocks(patches_of(x.sizes(), dy.sizes(), kept.geometry), x.options(), [&](const PatchBlock& block) {
      gather(block, x);
      add_weight_gradient(sum, small, block);
      if (!needs_input) return;
      at::Tensor windows = block.windows;  // used up: their gradient takes their place
      at::mm_out(windows, rows_of(small, block), matrix);
      scatter(block, dx);
    });
    return {dx, dweight, kept.bias != nullptr ? small.sum(0) : at::Tensor(), at::Tensor()};
  }
};

/// In half precision: products of windows by tiles, whose sums over blocks and over windows are of floats.
class HalfPatchConv : public torch::autograd::Function<HalfPatchConv> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& /*weight*/, const std::optional<at::Tensor>& bias,
                            c10::intrusive_ptr<KeptConvolution> kept) {
    const auto& g = kept->geometry;
    const at::Tensor y =
        empty_images(x, kept->factor.size(0), g.extent_after(x.size(2)), g.extent_after(x.size(3)));
    const at::Tensor small = pixels(y);
    const at::Tensor matrix = as_matrix(kept->factor).t();
    const at::Tensor shift = bias ? bias->to(x.scalar_type()) : at::Tensor();
    over_blocks(patches_of(x.sizes(), y.sizes(), g), x.options(), [&](const PatchBlock& block) {
      gather(block, x);
      at::Tensor rows = rows_of(small, block);
      if (shift.defined()) {
        at::addmm_out(rows, shift, block.windows, matrix);
      } else {
        at::mm_out(rows, block.windows, matrix);
      }
    });
    context->save_for_backward({x});
    KeptConvolution::keep(context, kept);
    return y;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    KeptConvolution& kept = KeptConvolution::of(context);
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous(kChannelsLast);
    const at::Tensor small = pixels(dy);
    const at::Tensor matrix = as_matrix(kept.factor);
    const at::Tensor dx = context->needs_input_grad(0)
                              ? at::empty(x.sizes(), x.options().memory_format(kChannelsLast))
                              : at::Tensor();
    const at::Tensor dweight = memory_of_weight_gradient(kept, x);
    const at::Tensor sum = as_matrix(dweight);
    over_blocks(patches_of(x.sizes(), dy.sizes(), kept.geometry), x.options(), [&](const PatchBlock& block) {
      gather(block, x);
      const at::Tensor left = rows_of(small, block);
      const at::Tensor product = at::mm(left.t(), block.windows);
      block.image == 0 ? sum.copy_(product) : sum.add_(product);
      if (!dx.defined()) return;
      at::Tensor windows = block.windows;  // used up: their gradient takes their place
      at::mm_out(windows, left, matrix);
      const at::Tensor part = dx.narrow(0, block.image, static_cast<std::int64_t>(block.size.images));
      const at::Tensor wide =
          at::empty(part.sizes(), part.options().dtype(at::kFloat).memory_format(kChannelsLast)).zero_();
      scatter({.size = block.size, .image = 0, .pixel = 0, .windows = windows}, wide);
      part.copy_(wide);
    });
    const at::Tensor dbias = kept.bias != nullptr ? small.sum(0, false, at::kFloat) : at::Tensor();
    return {dx, dweight, dbias, at::Tensor()};
  }
};

class PatchConvTranspose : public torch::autograd::Function<PatchConvTranspose> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias,
                            c10::intrusive_ptr<KeptConvolution> kept) {
    const auto& g = kept->geometry;
    const at::Tensor y =
        empty_images(input, weight.size(1), g.extent_before(input.size(2)), g.extent_before(input.size(3)));
    pixels(y).copy_(bias.expand({y.size(0) * y.size(2) * y.size(3), y.size(1)}));
    const at::Tensor small = pixels(input);
    const at::Tensor matrix = as_matrix(weight);
    over_blocks(patches_of(y.sizes(), input.sizes(), g), input.options(), [&](const PatchBlock& block) {
      at::Tensor windows = block.windows;
      at::mm_out(windows, rows_of(small, block), matrix);
      scatter(block, y);
    });
    context->save_for_backward({input});
    KeptConvolution::keep(context, kept);
    return y;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    KeptConvolution& kept = KeptConvolution::of(context);
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous(kChannelsLast);
    const at::Tensor small = pixels(x);
    const at::Tensor matrix = as_matrix(kept.weight->value).t();
    const bool needs_input = context->needs_input_grad(0);
    at::Tensor dx;
    at::Tensor dsmall;
    if (needs_input) {
      dx = at::empty(x.sizes(), x.options().memory_format(kChannelsLast));
      dsmall = pixels(dx);
    }
    const at::Tensor dweight = memory_of_weight_gradient(kept, x);
    at::Tensor sum = as_matrix(dweight);
    over_blocks(patches_of(dy.sizes(), x.sizes(), kept.geometry), x.options(), [&](const PatchBlock& block) {
      gather(block, dy);
      add_weight_gradient(sum, small, block);
      if (!needs_input) return;
      at::Tensor rows = rows_of(dsmall, block);
      at::mm_out(rows, block.windows, matrix);
    });
    return {dx, dweight, pixels(dy).sum(0), at::Tensor()};
  }
};

}  // namespace

bool fits_patch_conv(const at::Tensor& input, const at::Tensor& weight) {
  return std::min(weight.size(0), weight.size(1)) < kFewChannels && weight.is_contiguous(kChannelsLast) &&
         own_products_take(input, weight);
}

double patch_workspace_bytes(const at::Tensor& weight, const Conv2d::Geometry& geometry, const Shape& large,
                             const Shape& small) {
  if (std::min(weight.size(0), weight.size(1)) >= kFewChannels || !weight.is_contiguous(kChannelsLast))
    return 0.0;
  const auto whole = patches_of(large, small, geometry);
  const auto windows = images_at_once(whole, weight.options()) * whole.rows * whole.columns * whole.patch();
  return static_cast<double>(windows) * static_cast<double>(weight.element_size());
}

bool fits_half_patch_conv(const at::Tensor& input, const at::Tensor& weight) {
  const auto half = product_type();
  return half == at::kBFloat16 && own_kernels_are_on() && multiplies_in_tiles(half) && input.is_cpu() &&
         (input.scalar_type() == half || input.scalar_type() == at::kFloat) &&
         weight.scalar_type() == at::kFloat && weight.numel() >= kLargeWeight &&
         weight.is_contiguous(kChannelsLast);
}

at::Tensor half_patch_conv(const at::Tensor& input, Parameter& weight, Parameter* bias,
                           const Conv2d::Geometry& geometry) {
  auto kept = c10::make_intrusive<KeptConvolution>(&weight, bias, geometry);
  kept->factor = product_factor(weight);
  return HalfPatchConv::apply(as_factor(input).contiguous(kChannelsLast), weight.value,
                              bias != nullptr ? std::optional(bias->value) : std::nullopt, kept);
}

at::Tensor patch_conv(const at::Tensor& input, Parameter& weight, Parameter* bias,
                      const Conv2d::Geometry& geometry) {
  return PatchConv::apply(input.contiguous(kChannelsLast), weight.value,
                          bias != nullptr ? std::optional(bias->value) : std::nullopt,
                          c10::make_intrusive<KeptConvolution>(&weight, bias, geometry));
}

at::Tensor patch_conv_transpose(const at::Tensor& input, Parameter& weight, Parameter& bias,
                                const Conv2d::Geometry& geometry) {
  return PatchConvTranspose::apply(input.contiguous(kChannelsLast), weight.value, bias.value,
                                   c10::make_intrusive<KeptConvolution>(&weight, &bias, geometry));
}

}  // namespace dtrain::models
