#include "core/error.hpp"
#include "models/networks/torch_modules.hpp"

namespace dtrain::models {
namespace {

struct TorchMlp : torch::nn::Module {
  TorchMlp()
      : input_fc(register_module("input_fc", torch::nn::Linear(784, 250))),
        hidden_fc(register_module("hidden_fc", torch::nn::Linear(250, 100))),
        output_fc(register_module("output_fc", torch::nn::Linear(100, 10))) {}
  at::Tensor forward(const at::Tensor& x) {
    return output_fc(torch::relu(hidden_fc(torch::relu(input_fc(x.flatten(1))))));
  }
  torch::nn::Linear input_fc, hidden_fc, output_fc;
};

std::unique_ptr<Model> make_mlp(const DatasetFacts& facts, const ModelOptions& options = {}) {
  auto model = find_model("mlp").make(facts, options);
  model->initialise(1);
  return model;
}

TEST(MlpTest, HasTheNamesAndNumberOfParametersOfTheContract) {
  const auto model = make_mlp(images({1, 28, 28}));
  EXPECT_EQ(model->parameter_count(), 222360);
  std::vector<std::string> names;
  for (const Parameter* parameter : model->parameters()) names.push_back(parameter->name);
  EXPECT_EQ(names, (std::vector<std::string>{"input_fc.weight", "input_fc.bias", "hidden_fc.weight",
                                             "hidden_fc.bias", "output_fc.weight", "output_fc.bias"}));
  EXPECT_EQ(model->parameters()[2]->value.sizes().vec(), (Shape{100, 250}));
}

TEST(MlpTest, OutputsAndGradientsAreThoseOfTorch) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const int threads : {1, 2}) {  // with one thread small layers take dtrain's own kernels
      at::set_num_threads(threads);
      const auto model = make_mlp(images({1, 28, 28}));
      model->to(type, at::kCPU);
      model->initialise(3);
      TorchMlp theirs;
      theirs.to(type);
      copy_into(theirs, *model);
      torch::manual_seed(1);
      const at::Tensor input = at::randn({33, 1, 28, 28}, type);
      const at::Tensor targets = at::randint(10, {33}, at::kLong);
      expect_same(*model, theirs, run(*model, input)[0], theirs.forward(input), targets,
                  type == at::kFloat ? 1e-5 : 1e-12);
    }
  }
  at::set_num_threads(1);
}

TEST(MlpTest, ALinearChainGivesTheSameWhetherItsInputNeedsGradientsOrNot) {
  const auto model = make_mlp(images({1, 4, 4}, 3), {{"hidden", "8"}});
  const at::Tensor input = at::randn({5, 1, 4, 4});
  const at::Tensor leaf = input.clone().requires_grad_();
  run(*model, input)[0].sum().backward();
  const at::Tensor gradient = model->parameters()[0]->value.grad().clone();
  model->parameters()[0]->value.mutable_grad().reset();
  run(*model, leaf)[0].sum().backward();
  EXPECT_TRUE(at::equal(model->parameters()[0]->value.grad(), gradient));
  EXPECT_GT(leaf.grad().abs().sum().item<double>(), 0.0);
}

TEST(MlpTest, TakesRowsAndSequencesOfTables) {
  const auto rows = make_mlp({.task = "table_classification", .sample_shape = {13}, .classes = 3});
  EXPECT_EQ(run(*rows, at::randn({4, 13}))[0].sizes().vec(), (Shape{4, 3}));
  const auto series = make_mlp({.task = "table_classification", .sample_shape = {5, 7}, .classes = 2});
  EXPECT_EQ(run(*series, at::randn({4, 5, 7}))[0].sizes().vec(), (Shape{4, 2}));
}

TEST(MlpTest, WithoutClassesItHasOneOutputAndSquaredErrors) {
  const auto model = make_mlp({.task = "regression", .sample_shape = {6}});
  const at::Tensor outputs = run(*model, at::randn({4, 6}))[0];
  const at::Tensor targets = at::randn({4});
  const LossSums sums = model->loss({outputs}, targets);
  EXPECT_NEAR(sums.loss.item<double>(), (outputs.view(-1) - targets).square().sum().item<double>(), 1e-5);
  EXPECT_EQ(sums.weight, 4.0);
  EXPECT_FALSE(sums.correct.defined());
}

TEST(MlpTest, OptionsChangeHiddenLayersAndActivation) {
  const auto model = make_mlp(images({1, 28, 28}), {{"hidden", "64,32,16"}, {"activation", "tanh"}});
  EXPECT_EQ(model->parameters()[0]->value.sizes().vec(), (Shape{64, 784}));
  EXPECT_EQ(model->parameters()[4]->name, "hidden_fc2.weight");
  const at::Tensor input = at::randn({3, 1, 28, 28});
  const auto& p = model->parameters();
  at::Tensor value = input.flatten(1);
  for (std::size_t i = 0; i < 6; i += 2) value = at::tanh(at::linear(value, p[i]->value, p[i + 1]->value));
  value = at::linear(value, p[6]->value, p[7]->value);
  EXPECT_TRUE(at::allclose(run(*model, input)[0], value, 1e-5, 1e-6));
  EXPECT_EQ(make_mlp(images({1, 28, 28}), {{"hidden", ""}})->parameter_count(), 7850);
}

/// The message of the Error that making the model throws; its exit code must be 2.
std::string refusal(const DatasetFacts& facts, const ModelOptions& options) {
  try {
    make_mlp(facts, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(MlpTest, RefusesOptionsThatItDoesNotHave) {
  const auto facts = images({1, 28, 28});
  EXPECT_THAT(refusal(facts, {{"hiden", "3"}}), testing::HasSubstr("hidden, activation"));
  EXPECT_THAT(refusal(facts, {{"activation", "swish"}}), testing::HasSubstr("relu, tanh, gelu, sigmoid"));
  for (const char* bad : {"0", "-3", "12,", ",12", "12,,3", "a", "1.5", "99999999999999999999"}) {
    EXPECT_THAT(refusal(facts, {{"hidden", bad}}), testing::HasSubstr(bad)) << bad;
  }
  EXPECT_THAT(refusal({.task = "text", .sample_shape = {}, .vocabulary = 10}, {}),
              testing::HasSubstr("vocabulary"));
}

TEST(MlpTest, AnInputThatDoesNotFitIsNamedWithWhatWasWanted) {
  const auto model = make_mlp(images({1, 28, 28}));
  try {
    run(*model, at::randn({2, 3, 32, 32}));
    FAIL() << "a 3072-element sample was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("784"), testing::HasSubstr("3072")));
  }
}

}  // namespace
}  // namespace dtrain::models
