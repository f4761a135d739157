#include "models/exported/operations/attention.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <optional>

#include "models/exported/operations/masks.hpp"

namespace dtrain::models::exported {
namespace {

/// What a node says of its attention, and LibTorch's kernel for it.
class Attention : public Operation {
 protected:
  explicit Attention(const Given& given)
      : query_(given.needed_place("query")),
        key_(given.needed_place("key")),
        value_(given.needed_place("value")),
        mask_(given.place("attn_mask")),
        to_(given.result()),
        causal_(given.flag("is_causal", false)),
        grouped_(given.flag("enable_gqa", false)) {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    if (const double scale = given.real("scale", kNone); !std::isnan(scale)) scale_ = scale;
  }

  std::optional<at::Tensor> mask(const Workspace& work) const {
    return mask_ ? std::optional(work.tensors[*mask_]) : std::nullopt;
  }
  /// Without dropout.
  void run_kernel(Workspace& work, const std::optional<at::Tensor>& mask) const {
    work.tensors[to_] = at::scaled_dot_product_attention(
        work.tensors[query_], work.tensors[key_], work.tensors[value_], mask, 0.0, causal_, scale_, grouped_);
  }

  std::size_t query_, key_, value_;
  std::optional<std::size_t> mask_;
  std::size_t to_;
  bool causal_, grouped_;
  std::optional<double> scale_;
};

class DroppingAttention final : public Attention {
 public:
  DroppingAttention(const Given& given, const Flow& heads)
      : Attention(given), p_(given.probability("dropout_p")), stream_(stream_of(given.node)), heads_(heads) {}

  void run(Workspace& work) override {
    const auto mask = this->mask(work);
    if (work.context.mode == Mode::evaluation) return run_kernel(work, mask);
    const at::Tensor& query = work.tensors[query_];
    at::Tensor key = work.tensors[key_];
    at::Tensor value = work.tensors[value_];
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
  double p_;
  std::uint32_t stream_;
  Flow heads_;
};

class MaskedAttention final : public Attention {
 public:
  MaskedAttention(const Given& given, bool learns_mask) : Attention(given), learns_mask_(learns_mask) {}

  void run(Workspace& work) override {
    at::Tensor mask = this->mask(work).value();
    const bool learns = learns_mask_ && work.context.mode == Mode::training;
    if (mask.requires_grad() != learns) mask = mask.detach().set_requires_grad(learns);
    run_kernel(work, mask);
  }

 private:
  bool learns_mask_;
};

}  // namespace

std::unique_ptr<Operation> masked_attention_operation(const Given& given, bool learns_mask) {
  return std::make_unique<MaskedAttention>(given, learns_mask);
}

std::unique_ptr<Operation> attention_operation(const Given& given, const Flow& heads) {
  return std::make_unique<DroppingAttention>(given, heads);
}

}  // namespace dtrain::models::exported
