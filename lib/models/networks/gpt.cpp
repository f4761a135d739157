#include "models/networks/gpt.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "models/compute/kernel_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/layers/vocabulary.hpp"
#include "models/losses/fused_token_loss.hpp"
#include "models/losses/losses.hpp"
#include "models/losses/token_loss.hpp"
#include "models/options.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

struct Preset {
  const char* name;
  GptSizes sizes;
};

constexpr std::int64_t kBytePairs = 50257;  // of GPT-2's tokeniser, which GPT-3 has too

/// Radford et al. 2019 and Brown et al. 2020, table 2.1; char is nanoGPT's for one text, letter by letter.
const std::vector<Preset>& presets() {
  static const std::vector<Preset> kPresets = {
      {"char", {.layers = 6, .heads = 6, .width = 384, .block = 256, .dropout = 0.2}},
      {"gpt2", {.layers = 12, .heads = 12, .width = 768, .block = 1024}},
      {"gpt2-medium", {.layers = 24, .heads = 16, .width = 1024, .block = 1024}},
      {"gpt2-large", {.layers = 36, .heads = 20, .width = 1280, .block = 1024}},
      {"gpt2-xl", {.layers = 48, .heads = 25, .width = 1600, .block = 1024}},
      {"gpt3-175b", {.layers = 96, .heads = 96, .width = 12288, .block = 2048}},
  };
  return kPresets;
}

/// Elements beyond which a model gets memory only when it is initialised: it may be made to be counted.
constexpr double kLargestAllocated = 1e8;

GptSizes preset_sizes(const std::string& name) {
  const auto place = std::ranges::find(presets(), name, &Preset::name);
  if (place != presets().end()) return place->sizes;
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  throw usage_error(fmt::format("there is no preset {}", name), "--model-option preset",
                    fmt::format("use one of {}", fmt::join(names, ", ")));
}

/// The preset char has the letters of its text.
TextSizes own_text(const ModelOptions& options) {
  const std::string preset = option_or(options, "preset", "char");
  if (preset == "char") return {};
  return {.vocabulary = kBytePairs, .tokens = size_option(options, "block", preset_sizes(preset).block)};
}

GptSizes sizes_of(const DatasetFacts& facts, const ModelOptions& options) {
  GptSizes sizes = preset_sizes(option_or(options, "preset", "char"));
  sizes.vocabulary = facts.vocabulary;
  sizes.layers = size_option(options, "layers", sizes.layers);
  sizes.heads = size_option(options, "heads", sizes.heads);
  sizes.width = size_option(options, "width", sizes.width);
  sizes.block = size_option(options, "block", sizes.block);
  sizes.dropout = probability_option(options, "dropout", sizes.dropout);
  sizes.allocate = sizes.parameters() <= kLargestAllocated;
  if (sizes.width % sizes.heads != 0) {
    throw usage_error(fmt::format("{} heads cannot share a width of {}", sizes.heads, sizes.width),
                      "--model-option heads", "use a divisor of width");
  }
  return sizes;
}

class Gpt final : public Model {
 public:
  /// `head`: the last of the layers.
  Gpt(std::vector<std::unique_ptr<Layer>> layers, const GptHead& head, std::int64_t vocabulary)
      : Model("gpt", std::move(layers)), head_(head), vocabulary_(vocabulary) {}
  LossSums loss(const Tensors& outputs, const at::Tensor& targets) const override {
    return training_loss(outputs, targets, {});
  }
  bool has_cross_entropy() const override { return true; }
  LossSums training_loss(const Tensors& outputs, const at::Tensor& targets,
                         const TrainingLoss& how) const override {
    if (outputs.size() == 2)  // GptHead gave the factors of the logits
      return chunked_token_loss_sums(outputs[0].flatten(0, -2), head_.words_of(outputs), targets.flatten());
    const at::Tensor logits = outputs.at(0).flatten(0, -2);  // GptHead: words, then padding
    const bool sliced = Model::outputs().sliced();
    if (fused_kernels_are_on() && !sliced && how.label_smoothing == 0 && takes_fused_token_loss(logits))
      return fused_token_loss_sums(logits, targets.flatten(), vocabulary_);
    const auto words = sliced ? Model::outputs().part.size() : vocabulary_;
    return token_loss_sums(in_full(logits.narrow(1, 0, words)), targets.flatten(), Model::outputs(), group(),
                           how.label_smoothing);
  }
  bool takes_half_outputs() const override { return true; }
  ExtraColumns extra_columns() const override {
    return {{{"validation_perplexity", "1"}, {"validation_token_accuracy", "1", ExtraColumns::Log::no}}, 2};
  }
  std::vector<double> extra_sums(const Tensors& outputs, const at::Tensor& targets,
                                 Feedback /*words*/) const override {
    const auto right =
        right_tokens(outputs.at(0).flatten(0, -2), targets.flatten(), Model::outputs(), group());
    return {static_cast<double>(targets.numel()), right};
  }
  std::vector<double> extra_values(std::span<const double> sums, double loss) const override {
    return {std::exp(loss), sums[1] / sums[0]};
  }
  void require_known(const Tensors& inputs, const at::Tensor& targets) const override {
    models::require_known(inputs.at(0), vocabulary_, "inputs");
    models::require_known(targets, vocabulary_, "targets");
  }

 private:
  const GptHead& head_;
  std::int64_t vocabulary_;
};

std::unique_ptr<Model> make_gpt(const DatasetFacts& facts, const ModelOptions& options) {
  refuse_unknown("gpt", options, {"preset", "layers", "heads", "width", "block", "dropout"});
  loss_of(facts, "gpt", {Loss::cross_entropy});
  GptSizes sizes = sizes_of(facts, options);
  if (facts.task != "language_modelling" || facts.vocabulary < 1 || facts.sample_shape.size() != 1) {
    throw usage_error(
        fmt::format("the model gpt takes blocks of text, not samples of shape {} for the task {}",
                    shape_text(facts.sample_shape), facts.task),
        "--model gpt", "use another --model or --dataset");
  }
  if (facts.sample_shape[0] > sizes.block) {
    throw usage_error(
        fmt::format("blocks of {} tokens are longer than the model's {}", facts.sample_shape[0], sizes.block),
        "--model-option block", fmt::format("use {} or more", facts.sample_shape[0]));
  }
  sizes.tokens = facts.sample_shape[0];
  std::vector<std::unique_ptr<Layer>> layers;
  auto embedding = std::make_unique<GptEmbedding>(sizes);
  auto head = std::make_unique<GptHead>(sizes, *embedding);
  layers.push_back(std::move(embedding));
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    layers.push_back(std::make_unique<GptAttention>(sizes, i));
    layers.push_back(std::make_unique<GptMlp>(sizes, i));
  }
  const GptHead& last = *head;
  layers.push_back(std::move(head));
  return std::make_unique<Gpt>(std::move(layers), last, facts.vocabulary);
}

const GptEmbedding& embedding_of(const Model& gpt) {
  const auto* embedding = dynamic_cast<const GptEmbedding*>(gpt.layers().front().get());
  require(embedding != nullptr, "only the model gpt generates text", {.subject = gpt.name()});
  return *embedding;
}

}  // namespace

std::int64_t block_length(const Model& gpt) { return embedding_of(gpt).block(); }

std::int64_t width_of(const Model& gpt) { return embedding_of(gpt).parameters()[0].value.size(1); }

at::Tensor read_tokens(Model& gpt, Range layers, at::Tensor flowing, GptCache& cache) {
  const std::int64_t read = flowing.size(1);
  for (auto i = static_cast<std::size_t>(layers.begin); i < static_cast<std::size_t>(layers.end); ++i) {
    Layer& layer = *gpt.layers()[i];
    if (i == 0) {
      flowing = embedding_of(gpt).embed(flowing, cache.tokens);
    } else if (auto* attention = dynamic_cast<GptAttention*>(&layer)) {
      flowing = attention->forward_cached(flowing, cache.of_layer[i]);
    } else if (const auto* mlp = dynamic_cast<const GptMlp*>(&layer)) {
      flowing = mlp->forward_whole(flowing);
    } else {
      const auto& head = dynamic_cast<const GptHead&>(layer);
      flowing = head.logits_of_all_words(flowing.narrow(1, read - 1, 1)).squeeze(1);
    }
  }
  cache.tokens += read;
  return flowing;
}

Registration gpt() {
  return {"gpt",
          {.dataset = "tinyshakespeare",
           .options = {{"epochs", "5"},
                       {"optimizer", "adamw"},
                       {"beta2", "0.99"},
                       {"weight-decay", "0.1"},
                       {"decay", "matrices"},
                       {"schedule", "cosine"},
                       {"warmup-steps", "100"},
                       {"grad-clip", "1"}}},
          &make_gpt,
          &own_text};
}

}  // namespace dtrain::models
