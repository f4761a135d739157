#include "models/token_loss.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>

#include "models/shape.hpp"

namespace dtrain::models {

LossSums token_cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets) {
  const bool fits = logits.dim() == 2 && targets.dim() == 1 && targets.scalar_type() == at::kLong &&
                    targets.size(0) == logits.size(0);
  if (!fits) {
    throw data_error(fmt::format("target tokens {} do not fit the model's outputs {}",
                                 shape_text(targets.sizes()), shape_text(logits.sizes())),
                     "targets", "use a --dataset whose targets fit the --model's task");
  }
  const bool known = targets.numel() == 0 ||
                     (targets.ge(0).all().item<bool>() && targets.lt(logits.size(1)).all().item<bool>());
  require(known, fmt::format("a target token's id is outside the vocabulary of {}", logits.size(1)),
          {.subject = "targets", .advice = "stage the dataset again", .code = ExitCode::data});
  LossSums sums;
  sums.loss = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
  sums.weight = static_cast<double>(targets.size(0));
  return sums;
}

}  // namespace dtrain::models
