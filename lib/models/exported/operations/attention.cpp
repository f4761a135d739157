#include "models/exported/operations/attention.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <optional>

#include "models/exported/operations/masks.hpp"

namespace dtrain::models::exported {
namespace {

std::optional<double> scale_of(const Given& given) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const double scale = given.real("scale", kNone);
  return std::isnan(scale) ? std::nullopt : std::optional(scale);
}

class AttentionOperation final : public Operation {
 public:
  AttentionOperation(const Given& given, const Flow& heads)
      : query_(given.needed_place("query")),
        key_(given.needed_place("key")),
        value_(given.needed_place("value")),
        mask_(given.place("attn_mask")),
        to_(given.result()),
        p_(given.probability("dropout_p")),
        causal_(given.flag("is_causal", false)),
        grouped_(given.flag("enable_gqa", false)),
        stream_(stream_of(given.node)),
        heads_(heads),
        scale_(scale_of(given)) {}

  void run(Workspace& work) override {
    const at::Tensor& query = work.tensors[query_];
    at::Tensor key = work.tensors[key_];
    at::Tensor value = work.tensors[value_];
    const auto mask = mask_ ? std::optional(work.tensors[*mask_]) : std::nullopt;
    if (work.context.mode == Mode::evaluation) {
      work.tensors[to_] =
          at::scaled_dot_product_attention(query, key, value, mask, 0.0, causal_, scale_, grouped_);
      return;
    }
    if (grouped_) {
      key = key.repeat_interleave(query.size(-3) / key.size(-3), -3);
      value = value.repeat_interleave(query.size(-3) / value.size(-3), -3);
    }
    const double scale = scale_.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
    at::Tensor scores = at::matmul(query * scale, key.transpose(-2, -1));
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    if (causal_) {
      const auto seen = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril();
      scores = scores.masked_fill(seen.logical_not(), kNever);
    }
    if (mask) {
      scores =
          mask->scalar_type() == at::kBool ? scores.masked_fill(mask->logical_not(), kNever) : scores + *mask;
    }
    const at::Tensor weights = dropped(at::_safe_softmax(scores, -1), p_, work.context, stream_, heads_);
    work.tensors[to_] = at::matmul(weights.to(value.scalar_type()), value);
  }

 private:
  std::size_t query_, key_, value_;
  std::optional<std::size_t> mask_;
  std::size_t to_;
  double p_;
  bool causal_, grouped_;
  std::uint32_t stream_;
  Flow heads_;
  std::optional<double> scale_;
};

class MaskedAttentionOperation final : public Operation {
 public:
  MaskedAttentionOperation(const Given& given, bool learns_mask)
      : query_(given.needed_place("query")),
        key_(given.needed_place("key")),
        value_(given.needed_place("value")),
        mask_(given.needed_place("attn_mask")),
        to_(given.result()),
        causal_(given.flag("is_causal", false)),
        grouped_(given.flag("enable_gqa", false)),
        learns_mask_(learns_mask),
        scale_(scale_of(given)) {}

  void run(Workspace& work) override {
    at::Tensor mask = work.tensors[mask_];
    const bool learns = learns_mask_ && work.context.mode == Mode::training;
    if (mask.requires_grad() != learns) mask = mask.detach().set_requires_grad(learns);
    work.tensors[to_] = at::scaled_dot_product_attention(
        work.tensors[query_], work.tensors[key_], work.tensors[value_], mask, 0.0, causal_, scale_, grouped_);
  }

 private:
  std::size_t query_, key_, value_, mask_, to_;
  bool causal_, grouped_, learns_mask_;
  std::optional<double> scale_;
};

}  // namespace

std::unique_ptr<Operation> masked_attention_operation(const Given& given, bool learns_mask) {
  return std::make_unique<MaskedAttentionOperation>(given, learns_mask);
}

std::unique_ptr<Operation> attention_operation(const Given& given, const Flow& heads) {
  return std::make_unique<AttentionOperation>(given, heads);
}

}  // namespace dtrain::models::exported
