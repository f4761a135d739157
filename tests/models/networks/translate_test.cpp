#include "models/networks/translate.hpp"

#include <cmath>
#include <functional>

#include "core/error.hpp"
#include "models/networks/seq2seq_layers.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kWords = 6;  // two words besides padding, unknown, start and end
constexpr std::int64_t kLongest = 4;

/// Weights large enough that the likeliest word depends on what came before.
std::unique_ptr<Model> translator(std::uint64_t seed) {
  auto model = find_model("seq2seq").make({.task = "translation",
                                           .sample_shape = {6},
                                           .classes = 0,
                                           .vocabulary = 9,
                                           .target_vocabulary = kWords},
                                          {{"embedding", "5"}, {"hidden", "8"}, {"dropout", "0"}});
  model->to(at::kDouble, at::kCPU);
  model->initialise(seed);
  const at::NoGradGuard no_grad;
  for (Parameter* parameter : model->parameters()) parameter->value.mul_(20.0);
  model->parameters().back()->value[3] += 2.0;  // decoder.fc_out.bias: so that some sentences end early
  return model;
}

at::Tensor source() { return at::tensor({2, 5, 7, 8, 3}, at::kInt).unsqueeze(0); }

double log_probability(Model& model, const Sentence& words) {
  const at::NoGradGuard no_grad;
  const Tensors state = model.layers()[0]->forward({source(), source()}, {.mode = Mode::evaluation});
  auto& decoder = dynamic_cast<Decoder&>(*model.layers()[1]);
  auto layers = states_of(state[0], state[1]);
  double sum = 0;
  std::int32_t before = 2;
  for (std::size_t t = 0; t <= words.size(); ++t) {
    const at::Tensor logits = decoder.logits(at::full({1}, before, at::kInt), layers);
    before = t < words.size() ? words[t] : 3;
    sum += logits.log_softmax(1)[0][before].item<double>();
  }
  return sum;
}

TEST(TranslateTest, GreedyTakesTheLikeliestWordUntilTheEnd) {
  bool some_end = false;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const auto model = translator(seed);
    const auto words = translate_greedily(*model, encode(*model, source()), kLongest).at(0);
    some_end = some_end || words.size() < kLongest;
    EXPECT_EQ(translate_by_beam(*model, encode(*model, source()), 1, kLongest), words) << seed;
    // Two rows of one batch, one padded further, are translated as each alone.
    const at::Tensor padded = at::constant_pad_nd(source(), {0, 1}, 0);
    const at::Tensor other = at::tensor({2, 4, 4, 6, 6, 3}, at::kInt).unsqueeze(0);
    const auto both = translate_greedily(*model, encode(*model, at::cat({padded, other})), kLongest);
    EXPECT_EQ(both.at(0), words);
    EXPECT_EQ(both.at(1), translate_greedily(*model, encode(*model, other), kLongest).at(0));
  }
  EXPECT_TRUE(some_end) << "no translation ended by itself";
}

TEST(TranslateTest, AWideBeamFindsTheBestOfAllTranslations) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const auto model = translator(seed);
    double best = -std::numeric_limits<double>::infinity();
    Sentence best_words;
    const std::function<void(Sentence)> visit = [&](const Sentence& words) {
      const double score = log_probability(*model, words) / static_cast<double>(words.size() + 1);
      if (score > best) best_words = words;
      best = std::max(best, score);
      if (words.size() + 1 == kLongest) return;
      for (const std::int32_t word : {0, 1, 2, 4, 5}) {
        Sentence longer = words;
        longer.push_back(word);
        visit(longer);
      }
    };
    visit({});
    EXPECT_EQ(translate_by_beam(*model, encode(*model, source()), 2000, kLongest), best_words) << seed;
  }
}

TEST(TranslateTest, OtherModelsDoNotTranslate) {
  const auto model = find_model("mlp").make(images({1, 4, 4}), {});
  model->initialise(1);
  EXPECT_THROW(translate_greedily(*model, encode(*model, source()), 3), Error);
}

}  // namespace
}  // namespace dtrain::models
