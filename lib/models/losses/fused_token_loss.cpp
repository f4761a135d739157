#include "models/losses/fused_token_loss.hpp"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"

namespace dtrain::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

kernels::TokenRows rows_of(const at::Tensor& logits, std::int64_t words) {
  return {static_cast<std::size_t>(logits.size(0)), static_cast<std::size_t>(words),
          static_cast<std::size_t>(logits.size(1))};
}

class FusedTokenLoss : public torch::autograd::Function<FusedTokenLoss> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& targets,
                            std::int64_t words) {
    const auto options = logits.options().dtype(at::kFloat).requires_grad(false);
    const at::Tensor losses = at::empty({logits.size(0)}, options);
    const at::Tensor log_sums = at::empty({logits.size(0)}, options);
    const at::Tensor wanted = targets.contiguous();
    fused_kernels_for(logits)->token_loss(losses.data_ptr<float>(), log_sums.data_ptr<float>(),
                                          logits.const_data_ptr(), *element_of(logits.scalar_type()),
                                          wanted.const_data_ptr<std::int64_t>(), rows_of(logits, words),
                                          computing_stream(logits.device()));
    context->save_for_backward({logits, wanted, log_sums});
    context->saved_data["words"] = words;
    return losses.sum();
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor logits = saved[0].detach();
    const at::Tensor factor = gradients[0].to(at::kFloat);
    fused_kernels_for(logits)->token_loss_gradient(
        logits.data_ptr(), *element_of(logits.scalar_type()), saved[2].const_data_ptr<float>(),
        saved[1].const_data_ptr<std::int64_t>(), factor.const_data_ptr<float>(),
        rows_of(logits, context->saved_data["words"].toInt()), computing_stream(logits.device()));
    return {logits, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool takes_fused_token_loss(const at::Tensor& logits) {
  return logits.dim() == 2 && logits.is_contiguous() && element_of(logits.scalar_type()) &&
         fused_kernels_for(logits) != nullptr;
}

at::Tensor fused_token_loss(const at::Tensor& logits, const at::Tensor& targets, std::int64_t words) {
  return FusedTokenLoss::apply(logits, targets, words);
}

}  // namespace dtrain::models
