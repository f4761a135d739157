#include "models/losses/token_loss.hpp"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>

#include <limits>

#include "models/compute/beside.hpp"
#include "models/layers/vocabulary.hpp"
#include "models/losses/fused_token_loss.hpp"
#include "models/shape.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models {

namespace {

void check(const at::Tensor& logits, const at::Tensor& targets, std::int64_t words) {
  const bool fits = logits.dim() == 2 && targets.dim() == 1 && targets.scalar_type() == at::kLong &&
                    targets.size(0) == logits.size(0);
  if (!fits) {
    throw data_error(fmt::format("target tokens {} do not fit the model's outputs {}",
                                 shape_text(targets.sizes()), shape_text(logits.sizes())),
                     "targets", "use a --dataset whose targets fit the --model's task");
  }
  if (targets.is_cpu()) require_known(targets, words, "targets");  // else Model::require_known() was called
}

}  // namespace

LossSums token_cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets,
                                  double label_smoothing) {
  check(logits, targets, logits.size(1));
  constexpr std::int64_t kNoWord = -100;  // PyTorch's: its tokens are left out
  LossSums sums;
  sums.loss = at::cross_entropy_loss(logits, beside(targets, logits), {}, at::Reduction::Sum, kNoWord,
                                     label_smoothing);
  sums.weight = static_cast<double>(targets.size(0));
  return sums;
}

LossSums fused_token_loss_sums(const at::Tensor& logits, const at::Tensor& targets, std::int64_t words) {
  check(logits, targets, words);
  LossSums sums;
  sums.loss = fused_token_loss(logits, beside(targets, logits), words);
  sums.weight = static_cast<double>(targets.size(0));
  return sums;
}

LossSums chunked_token_loss_sums(const at::Tensor& input, const OutputWords& words,
                                 const at::Tensor& targets) {
  const std::int64_t count = words.value.size(0);
  check(input, targets, count);
  const at::Tensor rows = input.contiguous();
  const auto at_once = rows_of_piece(rows.size(0), rows_at_once(padded_columns(count), rows.element_size()));
  LossSums sums;
  sums.loss = chunked_token_loss(rows, words, beside(targets, input).contiguous(), at_once);
  sums.weight = static_cast<double>(targets.size(0));
  return sums;
}

LossSums sliced_token_cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets,
                                         const Flow& flow, TensorGroup& group, double label_smoothing) {
  check(logits, targets, flow.whole);
  at::Tensor largest = std::get<0>(logits.detach().max(1));
  group.max(largest);
  const at::Tensor shifted = logits - largest.unsqueeze(1);
  const at::Tensor total = group.leave(shifted.exp().sum(1));
  const at::Tensor columns = beside(targets, logits) - flow.part.begin;
  const at::Tensor elsewhere = columns.lt(0).logical_or(columns.ge(flow.part.size()));
  const at::Tensor held = shifted.gather(1, columns.masked_fill(elsewhere, 0).unsqueeze(1)).squeeze(1);
  const at::Tensor wanted = group.leave(held.masked_fill(elsewhere, 0));
  LossSums sums;
  if (label_smoothing == 0) {
    sums.loss = (total.log() - wanted).sum();
  } else {  // the mean over all words of -log softmax takes part
    const at::Tensor all = group.leave(shifted.sum(1));
    sums.loss = (total.log() - (1.0 - label_smoothing) * wanted -
                 label_smoothing / static_cast<double>(flow.whole) * all)
                    .sum();
  }
  sums.weight = static_cast<double>(targets.size(0));
  return sums;
}

LossSums token_loss_sums(const at::Tensor& logits, const at::Tensor& targets, const Flow& flow,
                         TensorGroup* group, double label_smoothing) {
  if (!flow.sliced()) return token_cross_entropy_sums(logits, targets, label_smoothing);
  return sliced_token_cross_entropy_sums(logits, targets, flow, *group, label_smoothing);
}

double right_tokens(const at::Tensor& logits, const at::Tensor& targets, const Flow& flow,
                    TensorGroup* group) {
  if (targets.size(0) == 0 && !flow.sliced()) return 0;
  const at::Tensor wanted = beside(targets, logits);
  if (!flow.sliced()) return static_cast<double>(logits.argmax(1).eq(wanted).sum().item<std::int64_t>());
  const auto [own, word] = logits.max(1);
  at::Tensor largest = own.clone();
  group->max(largest);
  // The first word that has it, over all ranks: in double, which holds every index.
  at::Tensor first = (word + flow.part.begin).to(at::kDouble).neg();
  first = first.masked_fill(own.ne(largest), -std::numeric_limits<double>::infinity());
  group->max(first);
  return static_cast<double>(first.neg().eq(wanted).sum().item<std::int64_t>());
}

}  // namespace dtrain::models
