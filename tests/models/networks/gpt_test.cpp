#include "models/networks/gpt.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "models/networks/torch_modules.hpp"

namespace dtrain::models {
namespace {

using torch::nn::LayerNorm;
using torch::nn::LayerNormOptions;
using torch::nn::Linear;

constexpr std::int64_t kWidth = 24;
constexpr std::int64_t kHeads = 3;
constexpr std::int64_t kVocabulary = 17;

/// Attention written out: a matrix of scores, a mask, a softmax.
struct TorchAttention : torch::nn::Module {
  TorchAttention()
      : c_attn(register_module("c_attn", Linear(kWidth, 3 * kWidth))),
        c_proj(register_module("c_proj", Linear(kWidth, kWidth))) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto n = x.size(0);
    const auto t = x.size(1);
    const auto parts = c_attn(x).chunk(3, 2);
    const auto heads = [&](const at::Tensor& part) {
      return part.view({n, t, kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    at::Tensor scores = at::matmul(heads(parts[0]), heads(parts[1]).transpose(2, 3));
    scores = scores / std::sqrt(static_cast<double>(kWidth) / kHeads);
    const at::Tensor later = at::ones({t, t}, at::kBool).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity()).softmax(-1);
    return c_proj(at::matmul(scores, heads(parts[2])).transpose(1, 2).reshape({n, t, kWidth}));
  }
  Linear c_attn, c_proj;
};

struct TorchMlp : torch::nn::Module {
  TorchMlp()
      : c_fc(register_module("c_fc", Linear(kWidth, 4 * kWidth))),
        c_proj(register_module("c_proj", Linear(4 * kWidth, kWidth))) {}
  at::Tensor forward(const at::Tensor& x) { return c_proj(at::gelu(c_fc(x))); }
  Linear c_fc, c_proj;
};

struct TorchBlock : torch::nn::Module {
  TorchBlock()
      : ln_1(register_module("ln_1", LayerNorm(LayerNormOptions({kWidth})))),
        attn(register_module("attn", std::make_shared<TorchAttention>())),
        ln_2(register_module("ln_2", LayerNorm(LayerNormOptions({kWidth})))),
        mlp(register_module("mlp", std::make_shared<TorchMlp>())) {}
  at::Tensor forward(at::Tensor x) {
    x = x + attn->forward(ln_1(x));
    return x + mlp->forward(ln_2(x));
  }
  LayerNorm ln_1;
  std::shared_ptr<TorchAttention> attn;
  LayerNorm ln_2;
  std::shared_ptr<TorchMlp> mlp;
};

struct TorchTransformer : torch::nn::Module {
  TorchTransformer()
      : wte(register_module("wte", torch::nn::Embedding(kVocabulary, kWidth))),
        wpe(register_module("wpe", torch::nn::Embedding(16, kWidth))),
        h(register_module("h", torch::nn::ModuleList())),
        ln_f(register_module("ln_f", LayerNorm(LayerNormOptions({kWidth})))) {
    for (int i = 0; i < 2; ++i) h->push_back(std::make_shared<TorchBlock>());
  }
  torch::nn::Embedding wte, wpe;
  torch::nn::ModuleList h;
  LayerNorm ln_f;
};

struct TorchGpt : torch::nn::Module {
  TorchGpt() : transformer(register_module("transformer", std::make_shared<TorchTransformer>())) {}
  at::Tensor forward(const at::Tensor& ids) {
    auto& t = *transformer;
    at::Tensor x = t.wte(ids) + t.wpe(at::arange(ids.size(1)));
    for (const auto& block : *t.h) x = block->as<TorchBlock>()->forward(x);
    return at::linear(t.ln_f(x), t.wte->weight);
  }
  std::shared_ptr<TorchTransformer> transformer;
};

DatasetFacts blocks(std::int64_t length, std::int64_t vocabulary) {
  return {.task = "language_modelling", .sample_shape = {length}, .classes = 0, .vocabulary = vocabulary};
}

std::unique_ptr<Model> small_gpt() {
  return find_model("gpt").make(
      blocks(16, kVocabulary),
      {{"layers", "2"}, {"heads", "3"}, {"width", "24"}, {"block", "16"}, {"dropout", "0"}});
}

at::Tensor next_logits(Model& model, const at::Tensor& ids, GptCache& cache) {
  return read_tokens(model, {0, static_cast<std::int64_t>(model.layers().size())}, ids, cache);
}

TEST(GptTest, PresetsHaveTheParametersOfTheContract) {
  const std::map<std::string, std::pair<std::int64_t, std::int64_t>> expected = {
      {"char", {65, 10770816}},
      {"gpt2", {50257, 124439808}},
      {"gpt2-medium", {50257, 354823168}},
      {"gpt2-large", {50257, 774030080}},
      {"gpt2-xl", {50257, 1557611200}},
      {"gpt3-175b", {50257, 174604259328}},
  };
  for (const auto& [preset, what] : expected) {
    const auto model = find_model("gpt").make(blocks(256, what.first), {{"preset", preset}});
    EXPECT_EQ(model->parameter_count(), what.second) << preset;
  }
}

TEST(GptTest, ALargeModelIsCountedButNotAllocated) {
  const auto model = find_model("gpt").make(blocks(2048, 50257), {{"preset", "gpt3-175b"}});
  EXPECT_TRUE(model->parameters()[0]->value.is_meta());
  EXPECT_GT(model->forward_flops({2048}), 2.0 * 174e9 * 2048);
  EXPECT_THROW(model->initialise(1), Error);
}

TEST(GptTest, NamesAreThoseOfNanoGpt) {
  std::vector<std::string> names;
  const auto model = small_gpt();
  for (const Parameter* parameter : model->parameters()) names.push_back(parameter->name);
  TorchGpt theirs;
  for (const auto& item : theirs.named_parameters()) {
    EXPECT_EQ(std::ranges::count(names, item.key()), 1) << item.key();
  }
  EXPECT_EQ(names.size(), theirs.named_parameters().size());
}

TEST(GptTest, OutputsAndGradientsAreThoseOfTorch) {
  at::set_num_threads(1);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto model = small_gpt();
    model->to(type, at::kCPU);
    model->initialise(5);
    TorchGpt theirs;
    theirs.to(type);
    copy_into(theirs, *model);
    torch::manual_seed(2);
    const at::Tensor ids = at::randint(kVocabulary, {3, 11}, at::kInt);
    const at::Tensor targets = at::randint(kVocabulary, {3, 11}, at::kLong);
    const double tolerance = type == at::kFloat ? 1e-5 : 1e-12;
    const at::Tensor outputs = run(*model, ids)[0];
    const at::Tensor their_outputs = theirs.forward(ids);
    EXPECT_TRUE(at::allclose(outputs, their_outputs, tolerance, tolerance));
    const LossSums sums = model->loss({outputs}, targets);
    EXPECT_EQ(sums.weight, 33.0);
    EXPECT_FALSE(sums.correct.defined());
    sums.loss.backward();
    at::cross_entropy_loss(their_outputs.flatten(0, 1), targets.flatten(), {}, at::Reduction::Sum).backward();
    const auto parameters = theirs.named_parameters();
    for (Parameter* parameter : model->parameters()) {
      EXPECT_TRUE(at::allclose(parameter->value.grad(), parameters[parameter->name].grad(), tolerance * 10,
                               tolerance * 10))
          << parameter->name;
    }
  }
}

TEST(GptTest, InitialisationIsNormalAndSmallerAtTheEndOfABranch) {
  const auto model = find_model("gpt").make(blocks(64, 65), {{"layers", "8"}, {"width", "96"}});
  model->initialise(3);
  for (const Parameter* parameter : model->parameters()) {
    const auto deviation = parameter->value.dim() < 2 ? 0.0 : parameter->value.std().item<double>();
    if (parameter->value.dim() < 2) {
      const bool norm = parameter->name.find(".ln_") != std::string::npos;
      const bool one = norm && parameter->name.ends_with("weight");
      EXPECT_TRUE(parameter->value.eq(one ? 1 : 0).all().item<bool>()) << parameter->name;
    } else {
      const bool residual = parameter->name.find("c_proj") != std::string::npos;
      EXPECT_NEAR(deviation, residual ? 0.005 : 0.02, residual ? 0.0003 : 0.001) << parameter->name;
    }
  }
}

TEST(GptTest, ACacheGivesTheLogitsOfAForwardPassOverTheWholeText) {
  const auto model = small_gpt();
  model->to(at::kDouble, at::kCPU);
  model->initialise(5);
  const at::NoGradGuard no_grad;
  const at::Tensor ids = at::randint(kVocabulary, {2, 12}, at::kInt);
  const at::Tensor whole = run(*model, ids, {.mode = Mode::evaluation})[0];
  GptCache cache;
  EXPECT_TRUE(
      at::allclose(next_logits(*model, ids.narrow(1, 0, 5), cache), whole.select(1, 4), 1e-10, 1e-12));
  for (std::int64_t t = 5; t < 12; ++t) {
    EXPECT_TRUE(
        at::allclose(next_logits(*model, ids.narrow(1, t, 1), cache), whole.select(1, t), 1e-10, 1e-12))
        << t;
  }
  next_logits(*model, ids.narrow(1, 0, 1), cache);
  for (int i = 0; i < 3; ++i) next_logits(*model, ids.narrow(1, 0, 1), cache);
  EXPECT_EQ(block_length(*model), 16);
  EXPECT_THROW(next_logits(*model, ids.narrow(1, 0, 1), cache), Error) << "beyond the block";
}

TEST(GptTest, DropoutBelongsToTrainingAndToTheStep) {
  const auto model = find_model("gpt").make(
      blocks(16, kVocabulary), {{"layers", "2"}, {"heads", "3"}, {"width", "24"}, {"dropout", "0.2"}});
  model->initialise(5);
  const at::Tensor ids = at::randint(kVocabulary, {2, 8}, at::kInt);
  const auto outputs = [&](Mode mode, std::uint32_t step) {
    return run(*model, ids, {.mode = mode, .step = step})[0];
  };
  EXPECT_TRUE(at::equal(outputs(Mode::training, 1), outputs(Mode::training, 1)));
  EXPECT_FALSE(at::equal(outputs(Mode::training, 1), outputs(Mode::training, 2)));
  EXPECT_TRUE(at::equal(outputs(Mode::evaluation, 1), outputs(Mode::evaluation, 2)));
}

TEST(GptTest, RefusesWhatDoesNotFit) {
  const auto make = find_model("gpt").make;
  EXPECT_THROW(make(images({3, 32, 32}), {}), Error);
  EXPECT_THROW(make(blocks(257, 65), {}), Error);
  EXPECT_THROW(make(blocks(64, 65), {{"preset", "gpt5"}}), Error);
  EXPECT_THROW(make(blocks(64, 65), {{"heads", "5"}}), Error);
  EXPECT_THROW(make(blocks(64, 65), {{"dropout", "1"}}), Error);
  const auto model = small_gpt();
  model->initialise(1);
  EXPECT_THROW(run(*model, at::zeros({1, 17}, at::kInt)), Error);
}

}  // namespace
}  // namespace dtrain::models
