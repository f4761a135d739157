#include "models/networks/seq2seq.hpp"

#include <fmt/format.h>

#include <cmath>

#include "models/losses/losses.hpp"
#include "models/losses/token_loss.hpp"
#include "models/networks/seq2seq_layers.hpp"
#include "models/options.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

class Seq2Seq final : public Model {
 public:
  explicit Seq2Seq(std::vector<std::unique_ptr<Layer>> layers) : Model("seq2seq", std::move(layers)) {}

  /// The decoder hands on which words it was to find: `targets` would have to be packed as it did.
  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override {
    return training_loss(outputs, targets, {});
  }
  bool has_cross_entropy() const override { return true; }
  LossSums training_loss(const Tensors& outputs, const at::Tensor& /*targets*/,
                         const TrainingLoss& how) const override {
    return token_loss_sums(outputs.at(0), outputs.at(1), Model::outputs(), group(), how.label_smoothing);
  }

  ExtraColumns extra_columns() const override {
    return {{{"validation_loss_free_running", "1"},
             {"validation_perplexity", "1", ExtraColumns::Log::no},
             {"validation_token_accuracy", "1", ExtraColumns::Log::no}},
            3};
  }

  /// Once more with the decoder's own words fed back.
  std::optional<Feedback> extra_feedback() const override { return Feedback::own_words; }
  /// Tokens, those that are right, and the loss with the decoder's own words.
  std::vector<double> extra_sums(const Tensors& outputs, const at::Tensor& targets,
                                 Feedback words) const override {
    if (words == Feedback::own_words) return {0, 0, loss(outputs, targets).loss.item<double>()};
    const auto right = right_tokens(outputs.at(0), outputs.at(1), Model::outputs(), group());
    return {static_cast<double>(outputs.at(1).size(0)), right, 0};
  }
  std::vector<double> extra_values(std::span<const double> sums, double loss) const override {
    return {sums[2] / sums[0], std::exp(loss), sums[1] / sums[0]};
  }

  std::vector<Shape> input_shapes(std::int64_t n, const Shape& sample) const override {
    const Shape sentence = {n, sample.at(0)};
    return {sentence, sentence};
  }
};

std::unique_ptr<Model> make_seq2seq(const DatasetFacts& facts, const ModelOptions& options) {
  refuse_unknown("seq2seq", options, {"embedding", "hidden", "layers", "dropout", "teacher-forcing"});
  loss_of(facts, "seq2seq", {Loss::cross_entropy});
  if (facts.task != "translation" || facts.vocabulary < 1 || facts.target_vocabulary < 1 ||
      facts.sample_shape.size() != 1) {
    throw usage_error(
        fmt::format("the model seq2seq takes pairs of sentences, not samples of shape {} for the "
                    "task {}",
                    shape_text(facts.sample_shape), facts.task),
        "--model seq2seq", "use another --model or --dataset");
  }
  Seq2SeqSizes sizes{.source_vocabulary = facts.vocabulary, .target_vocabulary = facts.target_vocabulary};
  sizes.embedding = size_option(options, "embedding", sizes.embedding);
  sizes.hidden = size_option(options, "hidden", sizes.hidden);
  sizes.layers = size_option(options, "layers", sizes.layers);
  sizes.dropout = probability_option(options, "dropout", sizes.dropout);
  sizes.teacher_forcing =
      probability_option(options, "teacher-forcing", sizes.teacher_forcing, Certainty::allowed);
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<Encoder>(sizes));
  layers.push_back(std::make_unique<Decoder>(sizes));
  return std::make_unique<Seq2Seq>(std::move(layers));
}

}  // namespace

Registration seq2seq() {
  return {"seq2seq",
          {.dataset = "multi30k", .options = {{"grad-clip", "1"}, {"global-batch", "128"}}},
          &make_seq2seq};
}

}  // namespace dtrain::models
