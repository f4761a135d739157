#include "models/layers/vocabulary.hpp"

#include <ATen/ops/argmax.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>

#include <limits>

#include "core/error.hpp"
#include "models/compute/beside.hpp"
#include "models/compute/sample_tap.hpp"
#include "models/layers/fused/fused_lookup.hpp"
#include "models/slicing/slices.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models {

void require_known(const at::Tensor& ids, std::int64_t words, const std::string& subject) {
  const bool known =
      ids.numel() == 0 || (ids.min().item<std::int64_t>() >= 0 && ids.max().item<std::int64_t>() < words);
  require(known, fmt::format("a token's id is outside the vocabulary of {}", words),
          {.subject = subject, .advice = "stage the dataset again", .code = ExitCode::data});
}

at::Tensor held_rows(const Parameter& table, const at::Tensor& ids) {
  const at::Tensor here = beside(ids, table.value);
  if (takes_fused_lookup(table)) return fused_lookup(table, here);
  if (table.slice == nullptr) return tapped_embedding(table.value, here);
  const at::Tensor rows = here - table.slice->part.begin;
  const at::Tensor elsewhere = rows.lt(0).logical_or(rows.ge(table.slice->part.size()));
  const at::Tensor held = at::embedding(table.value, rows.masked_fill(elsewhere, 0));
  return held.masked_fill(elsewhere.unsqueeze(-1), 0);
}

at::Tensor of_all_words(const at::Tensor& logits, const Parameter& table, TensorGroup* group) {
  if (table.slice == nullptr) return logits;
  Shape shape = logits.sizes().vec();
  shape.back() = sliced_extent(*table.slice);
  at::Tensor all = at::zeros(shape, logits.options().requires_grad(false));
  all.narrow(-1, table.slice->part.begin, table.slice->part.size()).copy_(logits.detach());
  group->sum(all);
  return all;
}

at::Tensor likeliest_words(const at::Tensor& logits, const Parameter& table, TensorGroup* group) {
  if (table.slice == nullptr) return logits.argmax(1);
  const auto [held, index] = logits.detach().max(1);
  at::Tensor largest = held.clone();
  group->max(largest);
  at::Tensor first = -(index + table.slice->part.begin).to(at::kDouble);  // the largest is the first word's
  first.masked_fill_(held.ne(largest), -std::numeric_limits<double>::infinity());
  group->max(first);
  return (-first).to(at::kLong);
}

}  // namespace dtrain::models
