#pragma once

#include <cstdint>
#include <vector>

#include "models/compute/sample_tap.hpp"
#include "models/layer.hpp"
#include "models/layers/lstm.hpp"
#include "models/layers/packing.hpp"

namespace dtrain::models {

struct Seq2SeqSizes {
  std::int64_t source_vocabulary = 0;
  std::int64_t target_vocabulary = 0;
  std::int64_t embedding = 256;
  std::int64_t hidden = 512;
  std::int64_t layers = 2;
  double dropout = 0.5;  ///< Of embeddings and between the LSTM's layers.
  double teacher_forcing = 0.5;
};

/// An embedding and a stack of LSTM layers over packed ids: what encoder and decoder share. Parameters
/// NAME.embedding.weight [vocabulary, embedding] and NAME.rnn.*, all from U(-0.08, 0.08).
class WordLstm {
 public:
  WordLstm(std::string name, const Seq2SeqSizes& sizes, std::int64_t vocabulary);

  /// What the layer that owns this object registers, in this order, before any others.
  std::vector<Parameter> make_parameters() const;

  /// The top layer's outputs for packed `ids` int32 [tokens]; `state` [layers] is the one before and becomes
  /// the one after each sequence's end. Throws Error (exit code 3) for an id outside the vocabulary.
  at::Tensor run(const std::vector<Parameter>& parameters, const at::Tensor& ids,
                 const std::vector<std::int64_t>& batch_sizes, std::vector<LstmState>& state,
                 const Context& context) const;

  /// Leaves this rank its words of the embedding; the LSTM stays whole: over a tensor group its many small
  /// sums would cost more than they save.
  void slice(std::vector<Parameter>& parameters, TensorGroup& group);

  Cost cost(const std::vector<Parameter>& parameters, double tokens) const;

 private:
  std::string name_;
  Seq2SeqSizes sizes_;
  std::int64_t vocabulary_;
  TensorGroup* group_ = nullptr;  // null: not sliced
};

/// Source and target ids int32 [n, S], [n, T] -> the state after each source's last word, hidden and cell
/// [layers, n, hidden], and the target as it came.
class Encoder final : public Layer, public SampleTapped {
 public:
  explicit Encoder(const Seq2SeqSizes& sizes);
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;
  Flow slice(TensorGroup& group, const Flow& flow) override;

 private:
  Seq2SeqSizes sizes_;
  WordLstm words_;
};

/// State and target ids -> logits [tokens, vocabulary] of the words after each target's first, and these
/// words, int64 [tokens], both packed: padding takes no part. Whether a sentence reads the target's words or
/// its own is decided once per sentence, by Philox(seed, step, micro-batch, row): its own words are found
/// first, step by step, greedily and without dropout, and then all sentences pass through the LSTM's layers
/// whole. Sliced, a rank gives the logits of its words.
class Decoder final : public Layer, public SampleTapped {
 public:
  explicit Decoder(const Seq2SeqSizes& sizes);
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;

  Flow slice(TensorGroup& group, const Flow& flow) override;

  /// Logits [n, vocabulary] of the words after `words` int32 [n]; `state` goes on by a step.
  at::Tensor logits(const at::Tensor& words, std::vector<LstmState>& state) const;

 private:
  const Parameter& output_weight() const { return parameters_[parameters_.size() - 2]; }
  at::Tensor held_logits(const at::Tensor& outputs) const;
  at::Tensor step(const at::Tensor& words, std::vector<LstmState>& state) const;  // logits of the words held
  std::vector<std::int64_t> rows_with_own_words(std::int64_t n, const Context& context) const;
  at::Tensor with_own_words(const at::Tensor& fed, const std::vector<std::int64_t>& lengths,
                            const std::vector<std::int64_t>& rows, const std::vector<LstmState>& start) const;
  Seq2SeqSizes sizes_;
  WordLstm words_;
  TensorGroup* group_ = nullptr;  // null: not sliced
};

/// hidden and cell [layers, n, hidden] as one state per layer.
std::vector<LstmState> states_of(const at::Tensor& hidden, const at::Tensor& cell);

}  // namespace dtrain::models
