#include "models/layers/fused/product_gradients.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/full_product.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/sample_tap.hpp"

namespace dtrain::models {

bool takes_product_gradients(const at::Tensor& x, const Parameter& weight) {
  return fused_kernels_are_on() && product_type() != at::kFloat && at::GradMode::is_enabled() &&
         SampleTap::open() == nullptr && x.numel() > 0 && weight.value.scalar_type() == at::kFloat &&
         fused_kernels_for(x) != nullptr;
}

at::Tensor weight_gradient(const at::Tensor& of_output, const at::Tensor& input, const Parameter& weight) {
  at::Tensor result = weight.take_gradient_memory();
  full_product(result, of_output.t(), input);
  return result;
}

at::Tensor bias_gradient(const at::Tensor& of_output, const Parameter& bias) {
  const at::Tensor result = bias.take_gradient_memory();
  const std::int64_t columns = of_output.size(1);
  const at::Tensor partial =
      at::empty({static_cast<std::int64_t>(kernels::FusedKernels::kPartialRows), columns},
                of_output.options().dtype(at::kFloat));
  fused_kernels_for(of_output)->column_sums(
      result.data_ptr<float>(), partial.data_ptr<float>(), of_output.const_data_ptr(),
      *element_of(of_output.scalar_type()), static_cast<std::size_t>(of_output.size(0)),
      static_cast<std::size_t>(columns), computing_stream(of_output.device()));
  return result;
}

}  // namespace dtrain::models
