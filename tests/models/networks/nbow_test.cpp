#include "core/error.hpp"
#include "models/compute/gradient_place.hpp"
#include "models/networks/torch_modules.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kVocabulary = 40;

struct TorchNbow : torch::nn::Module {
  TorchNbow()
      : embedding(register_module(
            "embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(kVocabulary, 300).padding_idx(0)))),
        fc(register_module("fc", torch::nn::Linear(300, 3))) {}
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor real = ids.ne(0).unsqueeze(2);
    const at::Tensor counts = real.sum(1).clamp_min(1);
    return fc((embedding(ids) * real).sum(1) / counts);
  }
  torch::nn::Embedding embedding;
  torch::nn::Linear fc;
};

DatasetFacts texts() {
  return {.task = "text_classification", .sample_shape = {300}, .classes = 3, .vocabulary = kVocabulary};
}

/// [7, 19] of different lengths, one text without a word.
at::Tensor some_ids() {
  at::Tensor ids = at::randint(1, kVocabulary, {7, 19}, at::kInt);
  for (std::int64_t i = 0; i < 7; ++i) ids[i].narrow(0, i * 3, 19 - i * 3).zero_();
  return ids;
}

TEST(NbowTest, HasTheNamesAndNumberOfParametersOfTheContract) {
  const auto model = find_model("nbow").make(
      {.task = "text_classification", .sample_shape = {256}, .classes = 2, .vocabulary = 25000}, {});
  EXPECT_EQ(model->parameter_count(), 300 * 25000 + 602);
  std::vector<std::string> names;
  for (const Parameter* parameter : model->parameters()) names.push_back(parameter->name);
  EXPECT_EQ(names, (std::vector<std::string>{"embedding.weight", "fc.weight", "fc.bias"}));
}

TEST(NbowTest, OutputsAndGradientsAreThoseOfTorch) {
  at::set_num_threads(1);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto model = find_model("nbow").make(texts(), {});
    model->to(type, at::kCPU);
    model->initialise(5);
    EXPECT_EQ(model->parameters()[0]->value[0].abs().max().item<double>(), 0.0) << "padding is not zero";
    TorchNbow theirs;
    theirs.to(type);
    copy_into(theirs, *model);
    torch::manual_seed(2);
    const at::Tensor ids = some_ids();
    const at::Tensor targets = at::randint(3, {7}, at::kLong);
    expect_same(*model, theirs, run(*model, ids)[0], theirs.forward(ids), targets,
                type == at::kFloat ? 1e-5 : 1e-12);
  }
}

TEST(NbowTest, PaddingAndWordsBeyondTheFirst256ChangeNothing) {
  const auto model = find_model("nbow").make(texts(), {});
  model->initialise(5);
  const at::Tensor ids = at::randint(1, kVocabulary, {2, 256}, at::kInt);
  const at::Tensor outputs = run(*model, ids)[0];
  const at::Tensor padded = at::constant_pad_nd(ids, {0, 9}, 0);
  const at::Tensor longer = at::constant_pad_nd(ids, {0, 9}, 7);
  EXPECT_TRUE(at::equal(run(*model, padded)[0], outputs));
  EXPECT_TRUE(at::equal(run(*model, longer)[0], outputs));
}

TEST(NbowTest, AGradientByRowsIsTheDenseOneInFactors) {
  const auto model = find_model("nbow").make(texts(), {});
  model->to(at::kDouble, at::kCPU);
  model->initialise(5);
  const at::Tensor ids = some_ids();
  const at::Tensor targets = at::randint(3, {7}, at::kLong);
  Parameter& embedding = *model->parameters()[0];
  model->loss(run(*model, ids), targets).loss.backward();
  const at::Tensor dense = embedding.value.grad().clone();
  embedding.value.mutable_grad().reset();
  RowGradients rows;
  const GradientPlace place(embedding, rows);
  model->loss(run(*model, ids), targets).loss.backward();
  EXPECT_FALSE(embedding.value.grad().defined());
  ASSERT_EQ(rows.size(), 1U);
  const RowGradient& factors = rows.front();
  const at::Tensor per_word =
      (factors.gradient * factors.scales.unsqueeze(1)).unsqueeze(1).expand({7, 19, 300}).reshape({-1, 300});
  at::Tensor sums = at::zeros_like(dense).index_add(0, factors.ids.flatten().to(at::kLong), per_word);
  sums[0].zero_();
  EXPECT_TRUE(at::allclose(sums, dense, 1e-12, 1e-14));
}

TEST(NbowTest, RefusesImagesWrongIdsAndOptions) {
  const auto make = find_model("nbow").make;
  EXPECT_THROW(make(images({3, 32, 32}), {}), Error);
  EXPECT_THROW(make(texts(), {{"hidden", "3"}}), Error);
  EXPECT_THROW(make(texts(), {{"embedding", "3,4"}}), Error);
  const auto model = make(texts(), {});
  model->initialise(1);
  for (const int id : {-1, static_cast<int>(kVocabulary)}) {
    try {
      run(*model, at::full({1, 2}, id, at::kInt));
      ADD_FAILURE() << "id " << id << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
    }
  }
}

}  // namespace
}  // namespace dtrain::models
