#include "models/layers/fused/fused_max_pool.hpp"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

kernels::PoolSize size_of(at::IntArrayRef images) {
  return {static_cast<std::size_t>(images[0]), static_cast<std::size_t>(images[2]),
          static_cast<std::size_t>(images[3])};
}

at::Tensor empty_images(at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::empty(shape, options.requires_grad(false).memory_format(kChannelsLast));
}

class FusedMaxPool : public torch::autograd::Function<FusedMaxPool> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& images) {
    const Shape halved = {images.size(0), images.size(1), images.size(2) / 2, images.size(3) / 2};
    const at::Tensor out = empty_images(halved, images.options());
    const at::Tensor which = empty_images(halved, images.options().dtype(at::kByte));
    fused_kernels_for(images)->max_pool(out.data_ptr(), which.data_ptr<std::uint8_t>(),
                                        images.const_data_ptr(), *element_of(images.scalar_type()),
                                        size_of(images.sizes()), static_cast<std::size_t>(images.size(1)),
                                        computing_stream(images.device()));
    context->saved_data["which"] = which;
    context->saved_data["shape"] = images.sizes().vec();
    return out;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const at::Tensor gradient = gradients[0].contiguous(kChannelsLast);
    const auto shape = context->saved_data["shape"].toIntVector();
    const at::Tensor of_images = empty_images(shape, gradient.options());
    fused_kernels_for(gradient)->max_pool_gradient(
        of_images.data_ptr(), gradient.const_data_ptr(),
        context->saved_data["which"].toTensor().const_data_ptr<std::uint8_t>(),
        *element_of(gradient.scalar_type()), size_of(shape), static_cast<std::size_t>(shape[1]),
        computing_stream(gradient.device()));
    return {of_images};
  }
};

}  // namespace

bool takes_fused_max_pool(const at::Tensor& images) {
  return fused_kernels_are_on() && !is_full_on_cpu(images) && images.dim() == 4 &&
         images.is_contiguous(kChannelsLast) && element_of(images.scalar_type()).has_value() &&
         fused_kernels_for(images) != nullptr;
}

at::Tensor fused_max_pool(const at::Tensor& images) { return FusedMaxPool::apply(images); }

}  // namespace dtrain::models
