#include "models/layers/fused/fused_lookup.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/compute/gradient_place.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/sample_tap.hpp"

namespace dtrain::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// In one order, whatever device it is.
void add_rows(at::Tensor& sums, const at::Tensor& ids, const at::Tensor& rows) {
  if (sums.is_cpu()) {
    sums.index_add_(0, ids, rows);
  } else {
    at::_index_put_impl_(sums, {ids}, rows, /*accumulate=*/true,
                         /*unsafe=*/true);  // else it looks at the ids on the CPU
  }
}

class FusedLookup : public torch::autograd::Function<FusedLookup> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value, const at::Tensor& ids,
                            const Parameter* table) {
    context->save_for_backward({ids});
    context->saved_data["table"] = reinterpret_cast<std::int64_t>(table);
    return at::embedding(value, ids);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto& table = *reinterpret_cast<const Parameter*>(context->saved_data["table"].toInt());
    const at::Tensor ids = context->get_saved_variables()[0].flatten();
    const at::Tensor rows = gradients[0].reshape({ids.size(0), table.value.size(1)});
    at::Tensor left = table.place != nullptr ? table.place->left() : at::Tensor();
    if (!left.defined() || left.scalar_type() != rows.scalar_type())
      return {at::embedding_dense_backward(rows, ids, table.value.size(0), -1, false), at::Tensor(),
              at::Tensor()};
    add_rows(left, ids.to(at::kLong), rows);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool takes_fused_lookup(const Parameter& table) {
  return fused_kernels_are_on() && table.slice == nullptr && at::GradMode::is_enabled() &&
         table.value.requires_grad() && SampleTap::open() == nullptr;
}

at::Tensor fused_lookup(const Parameter& table, const at::Tensor& ids) {
  return FusedLookup::apply(table.value, ids, &table);
}

}  // namespace dtrain::models
