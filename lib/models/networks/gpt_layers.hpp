#pragma once

#include <cstdint>

#include "models/borrowed_parameter.hpp"
#include "models/compute/sample_tap.hpp"
#include "models/layer.hpp"
#include "models/layers/token_flow.hpp"
#include "models/losses/chunked_token_loss.hpp"

namespace dtrain::models {

struct GptSizes {
  std::int64_t vocabulary = 0;
  std::int64_t layers = 6;
  std::int64_t heads = 6;
  std::int64_t width = 384;
  std::int64_t block = 256;  ///< Longest text.
  std::int64_t tokens = 0;   ///< Of every text in training: what the ranks of a tensor group share out.
  double dropout = 0.0;
  bool allocate = true;  ///< Otherwise parameters have a shape only, for counting.

  double parameters() const;  ///< Elements of all parameters.
};

/// What attention keeps of the tokens before: each [n, heads, tokens, width / heads]; undefined at the start.
struct KeysValues {
  at::Tensor keys;
  at::Tensor values;
};

/// ids int32 [n, T] -> [n, T, width]: transformer.wte.weight [vocabulary, width] and transformer.wpe.weight
/// [block, width], both from N(0, 0.02), added and dropped.
class GptEmbedding final : public Layer, public SampleTapped {
 public:
  explicit GptEmbedding(const GptSizes& sizes);
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;

  /// For generation: the sum for tokens that `before` others precede, not dropped, on every rank.
  at::Tensor embed(const at::Tensor& ids, std::int64_t before) const;
  Flow slice(TensorGroup& group, const Flow& flow) override;
  std::int64_t block() const { return sizes_.block; }

 private:
  void check(std::int64_t tokens, const Shape& shape) const;
  GptSizes sizes_;
  TokenFlow flow_;
};

/// x + dropout(c_proj(causal attention(c_attn(ln_1(x))))), x [n, T, width]; attention probabilities are not
/// dropped. Its parameters begin with `transformer.h.INDEX`.
class GptAttention final : public Layer, public SampleTapped {
 public:
  GptAttention(const GptSizes& sizes, std::int64_t index);
  Tensors forward(const Tensors& inputs, const Context& context) override;
  bool takes_pairs() const override { return true; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override { return inputs; }
  Cost cost(const std::vector<Shape>& inputs) const override;

  /// For generation: tokens that follow those in `cache`, which grows by them; not dropped, on every rank.
  at::Tensor forward_cached(const at::Tensor& input, KeysValues& cache) const;
  Flow slice(TensorGroup& group, const Flow& flow) override;

 private:
  at::Tensor attend(const at::Tensor& normed, const at::Tensor& bias, const TokenFlow& flow,
                    KeysValues* cache) const;
  GptSizes sizes_;
  std::int64_t heads_;  // of this rank
  TokenFlow flow_;
};

/// x + dropout(c_proj(gelu(c_fc(ln_2(x))))), the inner width four times the outer.
class GptMlp final : public Layer, public SampleTapped {
 public:
  GptMlp(const GptSizes& sizes, std::int64_t index);
  Tensors forward(const Tensors& inputs, const Context& context) override;
  bool takes_pairs() const override { return true; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override { return inputs; }
  Cost cost(const std::vector<Shape>& inputs) const override;
  Flow slice(TensorGroup& group, const Flow& flow) override;

  /// For generation: not dropped, on every rank.
  at::Tensor forward_whole(const at::Tensor& input) const;

 private:
  at::Tensor branch(const at::Tensor& normed, const at::Tensor& bias, const TokenFlow& flow) const;
  GptSizes sizes_;
  TokenFlow flow_;
};

/// transformer.ln_f, then the logits: a product with the token embedding's weight, which it shares.
/// [n, T, width] -> [n, T, vocabulary], sliced as the embedding is. In training with fused kernels
/// (KernelScope) columns of zeros follow, up to padded_columns() (models/losses/chunked_token_loss.hpp);
/// where the loss takes factors (LossScope), the normed input and the weight's value itself are given. What
/// is saved has the words only.
class GptHead final : public Layer, public SampleTapped {
 public:
  /// `embedding` must outlive the head.
  GptHead(const GptSizes& sizes, GptEmbedding& embedding);
  std::vector<BorrowedParameter*> borrowed() override { return {&words_}; }
  Tensors forward(const Tensors& inputs, const Context& context) override;
  bool takes_pairs() const override { return true; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;
  Flow slice(TensorGroup& group, const Flow& flow) override;

  /// Of the two factors that forward() gave.
  OutputWords words_of(const Tensors& factors) const;

  /// For generation: [n, T, width] of every rank -> [n, T, vocabulary] of all words on every rank.
  at::Tensor logits_of_all_words(const at::Tensor& input) const;

 private:
  enum class Columns { words, padded };
  bool gives_factors() const;
  at::Tensor logits(const Tensors& inputs, const TokenFlow& flow, Columns columns) const;
  GptSizes sizes_;
  BorrowedParameter words_;
  TokenFlow flow_;
};

}  // namespace dtrain::models
