#include "models/networks/translate.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "models/networks/seq2seq_layers.hpp"

namespace dtrain::models {
namespace {

constexpr std::int32_t kStart = 2;
constexpr std::int32_t kEnd = 3;

const Decoder& decoder_of(const Model& model) {
  const auto* decoder = dynamic_cast<const Decoder*>(model.layers().back().get());
  require(decoder != nullptr, "only the model seq2seq translates", {.subject = model.name()});
  return *decoder;
}

/// A translation under way.
struct Hypothesis {
  Sentence words;
  double log_probability = 0.0;

  double score() const { return log_probability / static_cast<double>(words.size() + 1); }
};

/// One hypothesis going on by a word.
struct Continuation {
  std::size_t from = 0;
  std::int32_t word = 0;
  double log_probability = 0.0;
};

/// The `width` likeliest continuations of all hypotheses, best first.
std::vector<Continuation> continuations(const std::vector<Hypothesis>& hypotheses, const at::Tensor& logits,
                                        std::int64_t width) {
  const at::Tensor scores = at::log_softmax(logits, 1).to(at::kDouble);
  const auto [best, words] = at::topk(scores, std::min(width, scores.size(1)), 1);
  std::vector<Continuation> all;
  for (std::size_t h = 0; h < hypotheses.size(); ++h) {
    for (std::int64_t k = 0; k < best.size(1); ++k) {
      const auto at = static_cast<std::int64_t>(h) * best.size(1) + k;
      all.push_back({h, static_cast<std::int32_t>(words.const_data_ptr<std::int64_t>()[at]),
                     hypotheses[h].log_probability + best.const_data_ptr<double>()[at]});
    }
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &Continuation::log_probability);
  all.resize(std::min(all.size(), static_cast<std::size_t>(width)));
  return all;
}

at::Tensor ids_tensor(const std::vector<std::int32_t>& ids) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(ids.size())}, at::kInt);
  std::ranges::copy(ids, tensor.data_ptr<std::int32_t>());
  return tensor;
}

}  // namespace

Tensors encode(Model& seq2seq, const at::Tensor& source) {
  const at::NoGradGuard no_grad;
  decoder_of(seq2seq);
  const Tensors state = seq2seq.layers().front()->forward({source, source}, {.mode = Mode::evaluation});
  return {state[0], state[1]};
}

Tensors room_for_encoded(const Model& seq2seq, std::int64_t n, at::ScalarType type) {
  decoder_of(seq2seq);
  const auto shapes = seq2seq.layers().front()->output_shapes({{n, 1}, {n, 1}});
  return {at::empty(shapes[0], type), at::empty(shapes[1], type)};
}

std::vector<Sentence> translate_greedily(Model& seq2seq, const Tensors& encoded, std::int64_t longest) {
  const at::NoGradGuard no_grad;
  const Decoder& decoder = decoder_of(seq2seq);
  auto state = states_of(encoded.at(0), encoded.at(1));
  const auto n = static_cast<std::size_t>(encoded[0].size(1));
  std::vector<Sentence> sentences(n);
  std::vector<bool> ended(n, false);
  at::Tensor words = at::full({encoded[0].size(1)}, kStart, at::kInt);
  for (std::int64_t t = 0; t < longest && std::ranges::count(ended, false) > 0; ++t) {
    words = decoder.logits(words, state).argmax(1).to(at::kInt);
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t word = words.const_data_ptr<std::int32_t>()[i];
      if (word == kEnd) ended[i] = true;
      if (!ended[i]) sentences[i].push_back(word);
    }
  }
  return sentences;
}

Sentence translate_by_beam(Model& seq2seq, const Tensors& encoded, std::int64_t width, std::int64_t longest) {
  require(width >= 1 && encoded.at(0).size(1) == 1, "a beam needs a sentence and a width of at least 1",
          {.subject = "translation"});
  const at::NoGradGuard no_grad;
  const Decoder& decoder = decoder_of(seq2seq);
  auto state = states_of(encoded[0], encoded.at(1));
  std::vector<Hypothesis> alive(1);
  std::vector<std::int32_t> last = {kStart};
  Hypothesis best;
  double best_score = -std::numeric_limits<double>::infinity();
  for (std::int64_t t = 0; t < longest && !alive.empty(); ++t) {
    const at::Tensor logits = decoder.logits(ids_tensor(last), state);
    std::vector<Hypothesis> next;
    std::vector<std::int32_t> from;
    last.clear();
    for (const Continuation& chosen : continuations(alive, logits, width)) {
      Hypothesis hypothesis{alive[chosen.from].words, chosen.log_probability};
      if (chosen.word == kEnd) {
        if (hypothesis.score() > best_score) best = hypothesis;
        best_score = std::max(best_score, hypothesis.score());
        continue;
      }
      hypothesis.words.push_back(chosen.word);
      last.push_back(chosen.word);
      from.push_back(static_cast<std::int32_t>(chosen.from));
      next.push_back(std::move(hypothesis));
    }
    alive = std::move(next);
    if (from.empty()) break;
    const at::Tensor rows = ids_tensor(from);
    for (LstmState& layer : state) {
      layer = {layer.hidden.index_select(0, rows), layer.cell.index_select(0, rows)};
    }
  }
  // Nothing has ended: the best of what was cut off.
  if (best_score == -std::numeric_limits<double>::infinity() && !alive.empty()) return alive.front().words;
  return best.words;
}

}  // namespace dtrain::models
